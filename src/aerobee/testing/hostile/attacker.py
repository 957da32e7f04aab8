"""A hostile client on raw sockets. It makes its frames by itself, so that it can send what the encoder refuses."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from aerobee.hot.wire.frame import scan_frames
from aerobee.model.numbers import parse_int
from aerobee.protocol.codes import BINARY, FLAG_ONEWAY, FLAG_RESPONSE, JSON
from aerobee.protocol.command import Command, decode_command

PATIENCE_S: Final = 30.0
_READ_BYTES: Final = 1 << 20
_VERSION: Final = 513


def frame_of(
    code: int,
    ext: Mapping[str, str] | None = None,
    body: bytes = b"",
    *,
    opaque: int = 1,
    codec: int = JSON,
    flag: int = 0,
) -> bytes:
    """Return a frame with any fields. A lone surrogate is sent as an escape, or as bytes that are no UTF-8."""
    fields = ext or {}
    if codec == BINARY:
        pieces = []
        for name, value in fields.items():
            key, data = name.encode("utf-8", "surrogatepass"), value.encode("utf-8", "surrogatepass")
            pieces.append(struct.pack(f">H{len(key)}sI{len(data)}s", len(key), key, len(data), data))
        block = b"".join(pieces)
        header = struct.pack(">hBHiiII", code, 0, _VERSION, opaque, flag, 0, len(block)) + block
    else:
        said = {"code": code, "extFields": dict(fields), "flag": flag, "language": "JAVA", "opaque": opaque}
        header = json.dumps({**said, "serializeTypeCurrentRPC": "JSON", "version": _VERSION}).encode()
    return struct.pack(">II", 4 + len(header) + len(body), codec << 24 | len(header)) + header + body


class Line:
    """A connection. `ask` returns None where the server closed it, which is an answer too."""

    def __init__(self, address: str, source: str = "") -> None:
        """`source` is the address that it comes from, where it is not the usual one."""
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, parse_int(port)), PATIENCE_S, (source, 0) if source else None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = b""
        self._come: list[Command] = []
        self.opaque = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def write(self, data: bytes) -> bool:
        """Send bytes as they are; return False where the server closed the connection or reads no more."""
        try:
            self._socket.sendall(data)
        except OSError:
            return False
        return True

    def frame(
        self,
        code: int,
        ext: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        codec: int = JSON,
        oneway: bool = False,
    ) -> bytes:
        """Return the bytes of a request under a new opaque."""
        self.opaque += 1
        return frame_of(code, ext, body, opaque=self.opaque, codec=codec, flag=FLAG_ONEWAY if oneway else 0)

    def tell(
        self,
        code: int,
        ext: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        codec: int = JSON,
        oneway: bool = False,
    ) -> bool:
        """Send a request without waiting for its answer; drop what came meanwhile, so that the server can write."""
        sent = self.write(self.frame(code, ext, body, codec=codec, oneway=oneway))
        self.skim()
        return sent

    def ask(
        self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"", *, codec: int = JSON
    ) -> Command | None:
        """Send a request; return its answer, or None where the connection was closed."""
        if not self.write(self.frame(code, ext, body, codec=codec)):
            return None
        return self.answer(self.opaque)

    def answer(self, opaque: int) -> Command | None:
        """Return the answer with this opaque; None where the connection was closed before it came."""
        for command in self.commands():
            if command.opaque == opaque and command.flag & FLAG_RESPONSE:
                return command
        return None

    def answers(self, *opaques: int) -> dict[int, Command]:
        """Return the answers with these opaques, as far as they came before the connection was closed."""
        found: dict[int, Command] = {}
        for command in self.commands():
            if command.opaque in opaques and command.flag & FLAG_RESPONSE:
                found[command.opaque] = command
                if len(found) == len(opaques):
                    break
        return found

    def commands(self) -> Iterator[Command]:
        """Yield whatever comes, until the connection is closed. Raise TimeoutError where nothing comes."""
        while True:
            frames, end = scan_frames(self._held)
            self._held = self._held[end:]
            self._come += [decode_command(frame) for frame in frames]
            while self._come:
                yield self._come.pop(0)
            try:
                data = self._socket.recv(_READ_BYTES)
            except TimeoutError:
                raise
            except OSError:
                return
            if not data:
                return
            self._held += data

    def read_until(self, *words: bytes) -> bytes:
        """Return what comes, until one of these words is in it or the connection is closed. Raise TimeoutError where
        nothing comes."""
        found = b""
        while not any(word in found for word in words):
            data = self._socket.recv(_READ_BYTES)
            if not data:
                break
            found += data
        return found

    def skim(self) -> None:
        """Drop what has come, without waiting for more. Only whole frames are dropped."""
        self._come.clear()
        self._socket.settimeout(0)
        with contextlib.suppress(OSError):
            while data := self._socket.recv(_READ_BYTES):
                self._held += data
        with contextlib.suppress(OSError):
            self._socket.settimeout(PATIENCE_S)
        _, end = scan_frames(self._held)
        self._held = self._held[end:]

    def reset(self) -> None:
        """Close the connection by a reset: nothing that is on its way arrives."""
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def half_close(self) -> None:
        """Close the sending side and go on reading."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)


@dataclass(frozen=True, slots=True)
class Kept:
    """A message that was acknowledged and must be read back."""

    topic: str
    queue_id: int
    offset: int
    body: bytes


class Attacker:
    """A maker of connections to a stage's servers. It closes what a case left open and notes what must be kept."""

    def __init__(self, broker: str, namesrv: str, metrics: str = "") -> None:
        self.broker = broker
        self.namesrv = namesrv
        # Where the broker serves metrics.
        self.metrics = metrics
        self.kept: list[Kept] = []
        self._open: list[Line] = []

    def line(self, *, namesrv: bool = False) -> Line:
        """Connect to the broker, or to the name server."""
        made = Line(self.namesrv if namesrv else self.broker)
        self._open.append(made)
        return made

    def line_to(self, address: str) -> Line | None:
        """Connect to another port; None where nobody listens."""
        try:
            made = Line(address)
        except OSError:
            return None
        self._open.append(made)
        return made

    def ask(self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"") -> Command | None:
        """Ask the broker on a connection of its own."""
        with Line(self.broker) as line:
            return line.ask(code, ext, body)

    def keep(self, topic: str, answer: Command | None, body: bytes) -> None:
        """Note a message whose send was answered: where it was accepted, it must be there after the restart."""
        if answer is not None and answer.code == 0:
            queue_id, offset = parse_int(answer.ext["queueId"]), parse_int(answer.ext["queueOffset"])
            self.kept.append(Kept(topic, queue_id, offset, body))

    def close(self) -> None:
        for line in self._open:
            line.close()
        self._open.clear()
