"""The live tail: messages as they arrive, as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any, Final
from urllib.parse import quote

from starlette.responses import Response

from aerobee.admin.messages import reader_of
from aerobee.client.consumer import LitePullConsumer
from aerobee.dashboard.blocks import Block, Choice, Note, PageLink, SearchForm, Tail, WebPage
from aerobee.dashboard.bodies import preview_of
from aerobee.dashboard.pages.messages import id_in_path
from aerobee.dashboard.pages.words import topics_to_suggest
from aerobee.dashboard.registry import PageView, page, raw
from aerobee.dashboard.scanning import SEARCHED, WantedMessages, wanted_of
from aerobee.dashboard.streaming import ClosingStream
from aerobee.errors import AerobeeError, InvalidArgumentError
from aerobee.errors.codes import QuotaExceededError
from aerobee.model.message import Message
from aerobee.model.queue import MessageQueue
from aerobee.runtime.tasks import Tasks

# What is shown; the rest is counted.
SHOWN_A_SECOND: Final = 50
TAILS_MAX: Final = 20
TAILS_OF_A_PERSON: Final = 10
LONGEST_S: Final = 3600.0
TURN_S: Final = 0.5
_WAIT_S: Final = 10.0
_BEAT_S: Final = 15.0
PULL: Final = 32
_PATHS: Final = ("topic", "tag", "sql92", "text")

_running: set[_Follower] = set()


def end_tails() -> None:
    """End every stream with a word to its reader: the server stops, and would have to cut them off."""
    for one in tuple(_running):
        one.end("the dashboard stops")


def _search(view: PageView) -> SearchForm:
    fields = [
        Choice("topic", "Topic", view.word("topic"), suggested=topics_to_suggest(view)),
        Choice("tag", "Tag", view.word("tag"), help="One, or A || B."),
        Choice("sql92", "SQL92", view.word("sql92"), help="Such as amount > 10 AND kind = 'new'."),
        Choice("text", "Text", view.word("text"), help=SEARCHED),
    ]
    return SearchForm("search", "Which messages", fields, "Follow")


@page("/tail", title="Tail", menu="Tail", form=_search)
async def tail(view: PageView) -> WebPage:
    topic = view.word("topic")
    blocks: list[Block] = [_search(view)]
    if not topic:
        blocks.append(
            Note("how", "Name a topic to see its messages as they arrive. No group is made, nothing is consumed.")
        )
        return WebPage("Tail", blocks)
    _wanted(view)
    query = {name: view.word(name) for name in _PATHS if view.word(name)}
    blocks.append(Tail("tail", "Messages as they come", "/raw/tail", query))
    links = [PageLink("Messages", "/messages", {"topic": topic}), PageLink("Topic", f"/topics/{topic}")]
    return WebPage(f"Tail {topic}", blocks, actions=links)


def _wanted(view: PageView) -> WantedMessages:
    if not view.shows_bodies and (view.word("text") or view.word("sql92")):
        raise InvalidArgumentError("a viewer cannot search in bodies and properties")
    return wanted_of(view.word("tag"), view.word("text"), view.word("sql92"))


@raw("/raw/tail")
async def stream(view: PageView) -> Response:
    """Return the stream of events: `messages` with what is shown and how many were only counted, or `failed`."""
    if not view.word("topic"):
        raise InvalidArgumentError("name a topic")
    if _room_for(view.person.name):
        raise QuotaExceededError(_room_for(view.person.name), code=0)
    follower = _Follower(view, _wanted(view))
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return ClosingStream(follower.events(), "text/event-stream", headers)


def _room_for(name: str) -> str:
    """Return why one more tail is not taken, nothing where it is."""
    if len(_running) >= TAILS_MAX:
        return f"{TAILS_MAX} tails are running already: close one"
    if sum(one.owner == name for one in _running) >= TAILS_OF_A_PERSON:
        return f"{name} has {TAILS_OF_A_PERSON} tails already: close one"
    return ""


class _Follower:
    """Follows every queue of a topic from its end. Each turn shows a bounded number of messages.

    Without a filter, what comes faster than it is shown is not even read: only counted by its offsets.
    """

    def __init__(self, view: PageView, wanted: WantedMessages) -> None:
        self._view = view
        self.owner = view.person.name
        self._wanted = wanted
        self._new: deque[Message] = deque()
        self._counted = 0
        self._arrived = asyncio.Event()
        self._began = asyncio.Event()
        self._problem = ""

    @property
    def _room(self) -> int:
        return int(SHOWN_A_SECOND * TURN_S) - len(self._new)

    async def events(self) -> AsyncGenerator[str, None]:
        """Yield the events. The consumer has a task of its own: when the reader leaves, this is cancelled where it
        stands, and connections would stay open."""
        # Many may have asked at the same moment.
        problem = _room_for(self.owner)
        if problem:
            yield _event("failed", {"words": problem})
            return
        _running.add(self)
        following = self._view.tasks.start(self._run(), name="tail")
        try:
            async for event in self._turns(following):
                yield event
        finally:
            following.cancel()
            _running.discard(self)

    def end(self, words: str) -> None:
        """End the stream soon."""
        self._problem = words
        self._arrived.set()

    async def _run(self) -> None:
        try:
            async with reader_of(self._view.admin) as consumer:
                queues = await consumer.queues(self._view.word("topic"))
                ends = {queue: await consumer.end_offset(queue) for queue in queues}
                self._began.set()
                async with Tasks() as tasks:
                    for queue, end in ends.items():
                        tasks.start(self._follow(consumer, queue, end), name=f"tail {queue.queue_id}")
                    await asyncio.Event().wait()
        except* AerobeeError as errors:
            self._problem = "; ".join(str(one) for one in errors.exceptions)
            self._arrived.set()

    async def _turns(self, following: asyncio.Task[None]) -> AsyncGenerator[str, None]:
        clock = self._view.clock
        until_s, beat_s = clock.monotonic() + LONGEST_S, clock.monotonic()
        says = False
        while clock.monotonic() < until_s and not self._problem and not following.done():
            if self._view.is_over():
                self._problem = "the session has ended: log in again"
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2 if not says else 1.0):
                    await self._arrived.wait()
            if self._began.is_set() and not says:
                says = True
                yield _event("following", {})
            if self._new or self._counted:
                shown = [self._told(one) for one in self._new]
                counted, self._counted = self._counted, 0
                self._new.clear()
                self._arrived.clear()
                yield _event("messages", {"messages": shown, "counted": counted})
                beat_s = clock.monotonic()
                await asyncio.sleep(TURN_S)
            elif clock.monotonic() - beat_s > _BEAT_S:
                beat_s = clock.monotonic()
                yield ": nothing new\n\n"
        yield _event("failed", {"words": self._problem or "stopped after an hour"})

    async def _follow(self, consumer: LitePullConsumer, queue: MessageQueue, offset: int) -> None:
        while True:
            if self._room <= 0:
                # Until the next turn there is no room. Without a filter the newest messages are enough.
                await asyncio.sleep(TURN_S)
                if self._wanted.is_all:
                    end = await consumer.end_offset(queue)
                    start = max(offset, end - max(1, self._room))
                    self._counted += start - offset
                    offset = start
            pulled = await consumer.pull(queue, offset, max=PULL, wait=_WAIT_S, unfold=False)
            for message in pulled.messages:
                if self._wanted.matches(message):
                    if self._room > 0:
                        self._new.append(message)
                    else:
                        self._counted += 1
                    self._arrived.set()
            offset = pulled.next_offset

    def _told(self, one: Message) -> dict[str, Any]:
        place = f"{one.broker}:{one.queue_id}:{one.queue_offset}"
        path = f"messages/{quote(one.topic, safe='')}/{quote(id_in_path(one), safe='')}?at={quote(place)}"
        body = preview_of(one) if self._view.shows_bodies else "(a viewer sees no bodies)"
        return {
            "stored": one.store_timestamp, "place": place, "tag": one.tags, "keys": one.keys, "body": body,
            "url": path,
        }  # fmt: skip


def _event(name: str, data: object) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
