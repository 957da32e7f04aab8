"""Bad input for servers, made from our own declarations: every request code with every field missing or wrong,
bodies of the wrong shape, and bytes that are no frames at all. Deterministic.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - seeded: the same junk in every run
from collections.abc import Iterator
from typing import cast

import msgspec

from aerobee.protocol import codes
from aerobee.protocol.codes import BINARY, BINARY_CODE_MAX, JSON
from aerobee.protocol.command import Command
from aerobee.protocol.connection import Connection
from aerobee.protocol.headers.registry import REQUEST_HEADERS

TEXTS = (
    "",
    "x",
    "-1",
    "0",
    "1",
    "2147483647",
    "2147483648",
    "-2147483649",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "9" * 5000,
    "1.5",
    "1e400",
    "NaN",
    "true",
    "null",
    "../../../outside",
    "a" * 33_000,
    "a" * 200,
    "\x00",
    "k\x01v\x02",
    "\ud800",
    "%RETRY%",
    "%DLQ%x",
    "%RETRY%../x",
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "*",
    "a || b || ",
    "\N{PILE OF POO}",
    "{}",
    "[1]",
    "a=b;c=d",
)

_WRONG: tuple[object, ...] = (
    5, -1, 1 << 70, 1.5, "x", "", None, True, [], {}, [5], ["x"], [None], [[]], [{}], {"x": 5}, {"x": None},
    {"x": {}}, {"x": []}, {"5": 5}, [{"topic": 5}], [{"topic": None}], [{"groupName": "g"}], {"x": "y"},
)  # fmt: skip

BODY_KEYS = (
    "clientID", "clientId", "producerDataSet", "consumerDataSet", "group", "groupName", "consumerGroup", "topic",
    "mqSet", "messageQueueSet", "offsetTable", "topicConfigTable", "topicConfigSerializeWrapper", "dataVersion",
    "topicConfigList", "subscriptionData", "subscriptionDataSet", "subString", "tagsSet", "codeSet", "queueId",
    "brokerName", "strategyName", "messageModel", "groupConfigList", "subscriptionGroupTable", "mode",
    "mqOffsets", "popShareQueueNum", "messageRequestMode", "filterServerList", "topicQueueMappingInfoMap", "keyTable",
    "groupRetryPolicy", "attributes", "brokerId", "readQueueNums", "writeQueueNums", "perm", "topicFilterType",
)  # fmt: skip


def all_codes() -> list[int]:
    """Every request code there is a name for, and some there is none for."""
    named = {value for name, value in vars(codes.RequestCode).items() if name.isupper() and isinstance(value, int)}
    return sorted(named | {0, 7, 999, 32_767, 54_321, (1 << 31) - 1, -1})


def sound_ext(code: int) -> dict[str, str]:
    """Ext fields that decode, with values that mean little."""
    header = REQUEST_HEADERS.get(code)
    if header is None:
        return {}
    ext = {}
    for one in msgspec.structs.fields(header):
        text = str(one.type)
        if "bool" in text:
            ext[one.encode_name] = "false"
        elif "int" in text:
            ext[one.encode_name] = "0"
        elif "float" in text:
            ext[one.encode_name] = "0.0"
        else:
            ext[one.encode_name] = _plausible(one.encode_name)
    return ext


def _plausible(name: str) -> str:
    lowered = name.lower()
    if name == "i" or lowered == "properties":
        return "UNIQ_KEY\x010A\x02"
    if "group" in lowered or name == "a":
        return "junk_group"
    if "topic" in lowered or name in {"b", "c"}:
        return "junk_topic"
    return "x"


def requests(code: int) -> Iterator[Command]:
    """Requests of one code, each wrong in one way. The first has everything in place."""
    ext = sound_ext(code)
    yield _command(code, ext, b"")
    for body in bodies():
        yield _command(code, ext, body)
        yield _command(code, {}, body)
    for name in ext:
        yield _command(code, {key: value for key, value in ext.items() if key != name}, b"{}")
        for text in TEXTS:
            yield _command(code, {**ext, name: text}, b"x")


def bodies() -> Iterator[bytes]:
    """Bodies of the wrong shape."""
    yield from (b"", b"{}", b"[]", b"null", b"5", b'"x"', b"\xff\xfe", b"\x00" * 64, b"{", b'{"a":', b"k=v\nx", b"=\n=")
    yield from (b"[" * 5_000, b'{"a":' * 5_000, b'{"a":1' + b"," * 5_000, b"9" * 5_000, b"listenPort=x\n", b"nokey=1\n")
    yield from (b'{"mqSet":[{"topic":"t","brokerName":"b","queueId":"x"}]}', b'{"offsetTable":{{"topic":5}:{}}}')
    for wrong in _WRONG:
        yield msgspec.json.encode(dict.fromkeys(BODY_KEYS, wrong)) if wrong != 1 << 70 else _huge_numbers()
        yield msgspec.json.encode(wrong) if wrong != 1 << 70 else str(wrong).encode()
    for key in BODY_KEYS:
        for wrong in (5, None, [None], {"x": 5}):
            yield msgspec.json.encode({key: wrong})


def _huge_numbers() -> bytes:
    return ("{" + ",".join(f'"{key}":{1 << 70}' for key in BODY_KEYS) + "}").encode()


def _command(code: int, ext: dict[str, str], body: bytes) -> Command:
    codec = BINARY if len(ext) % 2 and -BINARY_CODE_MAX <= code <= BINARY_CODE_MAX else JSON
    return Command(code, 0, 0, dict(ext), body, codec=codec)


def streams(seed: int, count: int) -> Iterator[bytes]:
    """Bytes that no client of ours would send."""
    rng = random.Random(seed)
    yield b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(200)
    for length in (0, 1, 3, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 16_777_213, 16_777_217):
        yield length.to_bytes(4, "big") + rng.randbytes(32)
    for header in (0x7FFFFF, 0xFFFFFF, 0x01FFFFFF, 0x02000010, 0xFF000004):
        yield (40).to_bytes(4, "big") + header.to_bytes(4, "big") + rng.randbytes(36)
    for text in (
        b"[" * 6_000, b'{"code":' * 3_000, b'{"code":10}', b'{"code":"x"}', b'{"code":1.5}', b'{"code":null}', b"null",
        b'{"code":10,"code":11}', b'{"code":10,"extFields":[]}', b'{"code":10,"extFields":{"a":{}}}',
        b'{"code":10,"opaque":99999999999999999999}', b'{"code":10,"flag":"x"}', b'{"code":10,"language":[]}',
        b'{"code":99999999999999999999999}', b"{\"code\":10,\"extFields\":{\"\xff\":\"\xfe\"}}", b"\xff" * 100,
    ):  # fmt: skip
        yield (len(text) + 4).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text
    for _ in range(count):
        yield rng.randbytes(rng.randrange(1, 2_000))


class JunkPeer(asyncio.Protocol):
    """One connection that sends what it likes and notes what comes back."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.closed = asyncio.Event()
        self.answers: dict[int, Command] = {}
        self._machine = Connection()
        self._came = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for command in self._machine.receive_data(data):
            self.answers[command.opaque] = command
        self._came.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        self._came.set()

    async def until(self, opaques: set[int], timeout_s: float) -> set[int]:
        """Those that are still unanswered when the time is over, or the connection closed."""
        try:
            async with asyncio.timeout(timeout_s):
                while not opaques <= self.answers.keys() and not self.closed.is_set():
                    self._came.clear()
                    await self._came.wait()
        except TimeoutError:
            pass
        return opaques - self.answers.keys()


async def connect(address: str) -> JunkPeer:
    host, _, port = address.rpartition(":")
    _, peer = await asyncio.get_running_loop().create_connection(JunkPeer, host, int(port))
    return peer
