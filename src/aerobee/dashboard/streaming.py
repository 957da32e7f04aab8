"""Answers that are made while they are sent, such as downloads of many messages: memory does not grow with them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Final

from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from aerobee.dashboard.registry import PageView
from aerobee.errors import AerobeeError

_READY_MAX: Final = 16


class ClosingStream(StreamingResponse):
    """An answer that ends what it is made of at once, also where its reader leaves or reads no more."""

    def __init__(self, rows: AsyncGenerator[str, None], kind: str, headers: Mapping[str, str]) -> None:
        super().__init__(rows, media_type=kind, headers=headers)
        self._rows = rows

    async def stream_response(self, send: Send) -> None:
        async with contextlib.aclosing(self._rows):
            await super().stream_response(send)


async def streamed(view: PageView, rows: AsyncGenerator[str, None], kind: str, name: str) -> Response:
    """Return a file of these rows. Raise what fails before the first row; a later failure is told in the last line.

    The rows have a task of their own: when the reader leaves, an answer is cancelled where it stands, and what the
    rows are read from would stay open.
    """
    ready: asyncio.Queue[str | AerobeeError | None] = asyncio.Queue(_READY_MAX)

    async def fill() -> None:
        try:
            async with contextlib.aclosing(rows):
                async for row in rows:
                    await ready.put(row)
            await ready.put(None)
        except AerobeeError as error:
            await ready.put(error)

    filling = view.tasks.start(fill(), name=f"download {name}")
    first = await ready.get()
    if isinstance(first, AerobeeError):
        raise first

    async def chunks() -> AsyncGenerator[str, None]:
        try:
            one: str | AerobeeError | None = first
            while isinstance(one, str):
                yield one
                one = await ready.get()
            if isinstance(one, AerobeeError):
                yield f"THIS FILE IS NOT WHOLE: {one}\n"
        finally:
            filling.cancel()

    return ClosingStream(chunks(), kind, {"content-disposition": f'attachment; filename="{name}"'})
