"""Requests that a broker passes on to the new master of its group, for clients that still have the old route.

Java's clients keep a route for up to 30 seconds, and a refusal does not make them ask again. So a broker that was the
master passes on for a while what only a master serves. It does so within bounds, and it refuses what another broker has
passed on already.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from aerobee.broker.roles import Tables, is_rejection, reject, reject_frame
from aerobee.errors import AerobeeError
from aerobee.hot.wire.frame import Frame
from aerobee.net.channel import Channel
from aerobee.net.client import RemotingClient
from aerobee.net.link import Answered, Link
from aerobee.net.server import FastHandler, Handler
from aerobee.protocol.codes import FLAG_ONEWAY, RequestCode
from aerobee.protocol.command import Command, decode_command
from aerobee.runtime.seams import Clock
from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.stdlog import get_log

# How long a broker that was the master passes requests on.
FORWARD_S: Final = 60.0
# Requests that wait for the new master, and the bytes of their bodies. More are refused.
IN_FLIGHT_MAX: Final = 4096
BYTES_MAX: Final = 64 << 20
# Set by whoever passes a request on. Such a request is not passed on again.
FORWARDED: Final = "__AEROBEE_FORWARDED"

_ANSWER_S: Final = 5.0
# How long a request waits until the new master serves, and how soon that is looked at again.
HOLD_S: Final = 2.0
_AGAIN_S: Final = 0.02
# A pull is held by the master for as long as its client asked, which is 30 seconds at most for Apache's clients.
_PULL_S: Final = 40.0
_PULLS: Final = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))
CODES: Final = _PULLS | frozenset(
    (
        RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION, RequestCode.RECALL_MESSAGE,
        RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ,
    )
)  # fmt: skip

_log = get_log("broker.forwarding")


@dataclass(frozen=True, slots=True)
class _Request:
    """A request that is passed on. It may wait until a loop time."""

    channel: Channel
    command: Command
    until_s: float


class Forwarder:
    """Passes requests on to the master that it was told last, for `FORWARD_S` after `begin`."""

    def __init__(self, client: RemotingClient, clock: Clock, tasks: Tasks) -> None:
        self._client = client
        self._clock = clock
        self._tasks = tasks
        self._target = ""
        self._until_s = 0.0
        # The addresses to which a connection is being made. One that does not answer must not keep us from the next.
        self._connecting: set[str] = set()
        self._in_flight = 0
        self._bytes = 0
        # Requests that wait for their turn, and whether the master has served one. Until then one is tried at a time.
        self._waiting: deque[_Request] = deque()
        self._serves = False
        self._probe: _Request | None = None
        self._is_timed = False
        # How many requests were passed on.
        self.forwarded = 0

    @property
    def target(self) -> str:
        """Return the address of the master, or an empty text if this broker is the master or knows none."""
        return self._target

    def begin(self) -> None:
        """Pass requests on from now on: this broker was the master."""
        self._until_s = self._clock.monotonic() + FORWARD_S

    def end(self) -> None:
        """Pass nothing on: this broker leads again."""
        self._until_s = 0.0

    def aim(self, address: str) -> None:
        """Pass requests on to this address; an empty one means that there is no master."""
        if address != self._target:
            self._target = address
            self._serves = False
            self._probe = None
            if address and self._clock.monotonic() < self._until_s:
                self._connect()

    def served(self, follower: Tables) -> Tables:
        """Return a follower's tables, with handlers that pass requests on in place of refusals."""
        handlers: dict[int, Handler] = dict(follower.handlers)
        fast: dict[int, FastHandler] = dict(follower.fast)
        for code in CODES:
            if handlers.get(code) is reject:
                handlers[code] = self._on_command
            if fast.get(code) is reject_frame:
                fast[code] = self._on_frame
        return Tables(handlers, fast)

    # -- one request

    def _on_frame(self, channel: Channel, frame: Frame) -> None:
        if self._clock.monotonic() >= self._until_s:
            reject_frame(channel, frame)
            return
        answer = self._on_command(channel, decode_command(frame))
        if answer is not None and not frame.flag & FLAG_ONEWAY:
            channel.send(answer)

    def _on_command(self, channel: Channel, command: Command) -> Command | None:
        """Pass a request on, now or when the new master leads, or return a refusal."""
        size = len(command.body)
        if (
            self._clock.monotonic() >= self._until_s
            or FORWARDED in command.ext
            or self._in_flight >= IN_FLIGHT_MAX
            or self._bytes + size > BYTES_MAX
        ):
            return reject(channel, command)
        if command.is_oneway:
            link = self._client.peek(self._target) if self._target else None
            if link is not None:
                self.forwarded += 1
                link.write(self._client.frame(self._passed(command)))
            return None
        self._in_flight += 1
        self._bytes += size
        request = _Request(channel, command, asyncio.get_running_loop().time() + HOLD_S)
        if command.code in _PULLS:
            self._pull(request)
        else:
            self._waiting.append(request)
            self._pump()
        return None

    def _passed(self, command: Command) -> Command:
        return replace(command, opaque=self._client.next_opaque(), ext={**command.ext, FORWARDED: "1"})

    def _post(self, link: Link, request: _Request, wait_s: float, answered: Answered) -> None:
        passed = self._passed(request.command)
        self.forwarded += 1
        deadline_s = asyncio.get_running_loop().time() + wait_s
        link.post(passed.opaque, self._client.frame(passed), deadline_s, answered)

    def _answer(self, request: _Request, answer: Command | AerobeeError) -> None:
        channel, command = request.channel, request.command
        self._in_flight -= 1
        self._bytes -= len(command.body)
        if channel.closed:
            return
        if isinstance(answer, AerobeeError):
            channel.send(reject(channel, command))
        else:
            channel.send(replace(answer, opaque=command.opaque))

    # -- requests in their order

    def _pump(self) -> None:
        """Pass on what waits, in the order in which it came.

        Until the new master has served one request, only one is under way. Else it could refuse a send and take a later
        one, and the first would be stored behind it. A master that is silent blocks the others for `HOLD_S` at most: if
        it refuses the first one after that, the client hears so.
        """
        loop = asyncio.get_running_loop()
        if self._probe is not None and self._probe.until_s <= loop.time():
            self._probe = None
        while self._waiting and self._waiting[0].until_s <= loop.time():
            late = self._waiting.popleft()
            self._answer(late, reject(late.channel, late.command))
        link = self._client.peek(self._target) if self._target else None
        if link is None:
            self._connect()
        else:
            while self._waiting and self._probe is None:
                request = self._waiting.popleft()
                if not self._serves:
                    self._probe = request
                self._pass(link, request, self._target)
        if self._waiting:
            self._time()

    def _pump_again(self) -> None:
        self._is_timed = False
        self._pump()

    def _pass(self, link: Link, request: _Request, target: str) -> None:
        is_probe = self._probe is request

        def answered(answer: Command | AerobeeError) -> None:
            refused = isinstance(answer, Command) and is_rejection(answer)
            if target == self._target and isinstance(answer, Command) and (is_probe or refused):
                self._serves = not refused
            if is_probe and refused and self._probe is request:
                self._waiting.appendleft(request)
            else:
                self._answer(request, answer)
            if self._probe is request:
                self._probe = None
            if self._waiting and refused:
                self._time()  # to ask again at once would keep it busy
            elif self._waiting:
                self._pump()

        self._post(link, request, _ANSWER_S, answered)

    def _time(self) -> None:
        if not self._is_timed:
            self._is_timed = True
            asyncio.get_running_loop().call_later(_AGAIN_S, self._pump_again)

    # -- pulls, which have no order and may be held for long

    def _pull(self, request: _Request) -> None:
        loop = asyncio.get_running_loop()
        link = self._client.peek(self._target) if self._target else None

        def answered(answer: Command | AerobeeError) -> None:
            if isinstance(answer, Command) and is_rejection(answer) and loop.time() < request.until_s:
                loop.call_later(_AGAIN_S, self._pull, request)
            else:
                self._answer(request, answer)

        if link is not None:
            self._post(link, request, _PULL_S, answered)
        elif loop.time() < request.until_s:
            self._connect()
            loop.call_later(_AGAIN_S, self._pull, request)
        else:
            self._answer(request, reject(request.channel, request.command))

    def _connect(self) -> None:
        if self._target and self._target not in self._connecting and not self._tasks.is_closing:
            self._connecting.add(self._target)
            self._tasks.start(self._open(self._target), name="forwarding")

    async def _open(self, address: str) -> None:
        try:
            await self._client.link(address)
        except AerobeeError as error:
            _log.debug("the new master cannot be reached, requests for it are refused", master=address, reason=error)
        finally:
            self._connecting.discard(address)
