"""What the dashboard reads from a request, and which HTTP status an error becomes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

from starlette.requests import Request

from aerobee.errors import AerobeeError, InvalidArgumentError, TransportError
from aerobee.errors.codes import (
    AuthNotExistError,
    GroupNotExistError,
    NoPermissionError,
    QueryNotFoundError,
    TopicNotExistError,
)
from aerobee.protocol.codes import ResponseCode

T = TypeVar("T")

TITLES: Final = {
    400: "This cannot be asked", 403: "Not allowed", 404: "Not found", 503: "The cluster does not answer",
}  # fmt: skip


def way_back(back: str) -> str:
    """Return where somebody goes after the login: a page of this dashboard, and nowhere else."""
    is_ours = back.startswith("/") and not back.startswith("//") and "\\" not in back and back.isprintable()
    return back if is_ours else "/"


def may_be_mended(request: Request, error: AerobeeError) -> bool:
    """Tell whether somebody may mend what is wrong by other words in the form that they filled."""
    return not is_api(request) and status_of_error(error) != 403


def path_of(request: Request) -> str:
    """Return the path of a request. Starlette's URL takes what follows a quoted question mark for a query."""
    return str(request.scope["path"])


def is_api(request: Request) -> bool:
    path = path_of(request)
    return path == "/api" or path.startswith("/api/")


def status_of_error(error: AerobeeError) -> int:
    """Return the HTTP status that says what an error says."""
    if isinstance(error, NoPermissionError):
        return 403
    if isinstance(error, TopicNotExistError | GroupNotExistError | QueryNotFoundError | AuthNotExistError):
        return 404
    if isinstance(error, InvalidArgumentError) or error.code == ResponseCode.INVALID_PARAMETER:
        return 400
    return 503 if isinstance(error, TransportError) else 409


async def until_left(request: Request, work: Awaitable[T]) -> T | None:
    """Return the result of a page, or None if its reader has gone meanwhile: then the work is cancelled."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(gone())
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        return None
    finally:
        for one in (working, leaving):
            one.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)
