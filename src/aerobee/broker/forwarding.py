"""Requests that a broker passes on to the new master of its group, for clients that still have the old route.

Java's clients keep a route for up to 30 seconds, and a refusal does not make them ask again. So a broker that was the
master passes on for a while what only a master serves. It does so within bounds, and it refuses what another broker has
passed on already.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from aerobee.broker.roles import Tables, reject, reject_frame
from aerobee.errors import AerobeeError
from aerobee.hot.wire.frame import Frame
from aerobee.net.channel import Channel
from aerobee.net.client import RemotingClient
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


class Forwarder:
    """Passes requests on to the master that it was told last, for `FORWARD_S` after `begin`."""

    def __init__(self, client: RemotingClient, clock: Clock, tasks: Tasks) -> None:
        self._client = client
        self._clock = clock
        self._tasks = tasks
        self._target = ""
        self._until_s = 0.0
        self._connecting = False
        self._in_flight = 0
        self._bytes = 0
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
        """Pass a request on, or return a refusal."""
        size = len(command.body)
        link = self._client.peek(self._target) if self._target else None
        if (
            self._clock.monotonic() >= self._until_s
            or FORWARDED in command.ext
            or self._in_flight >= IN_FLIGHT_MAX
            or self._bytes + size > BYTES_MAX
        ):
            return reject(channel, command)
        if link is None:
            self._connect()
            return reject(channel, command)
        opaque = self._client.next_opaque()
        passed = replace(command, opaque=opaque, ext={**command.ext, FORWARDED: "1"})
        self.forwarded += 1
        if command.is_oneway:
            link.write(self._client.frame(passed))
            return None
        self._in_flight += 1
        self._bytes += size

        def answered(answer: Command | AerobeeError) -> None:
            self._in_flight -= 1
            self._bytes -= size
            if channel.closed:
                return
            if isinstance(answer, AerobeeError):
                channel.send(reject(channel, command))
            else:
                channel.send(replace(answer, opaque=command.opaque))

        wait_s = _PULL_S if command.code in _PULLS else _ANSWER_S
        deadline_s = asyncio.get_running_loop().time() + wait_s
        link.post(opaque, self._client.frame(passed), deadline_s, answered)
        return None

    def _connect(self) -> None:
        if not self._connecting and self._target:
            self._connecting = True
            self._tasks.start(self._open(self._target), name="forwarding")

    async def _open(self, address: str) -> None:
        try:
            await self._client.link(address)
        except AerobeeError as error:
            _log.debug("the new master cannot be reached, requests for it are refused", master=address, reason=error)
        finally:
            self._connecting = False
