"""Bad input for servers, made from the declarations of requests: every request code with every field missing or wrong,
bodies of the wrong shape, and bytes that are no frames. The input is the same in every run.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - seeded: the same junk in every run
from collections.abc import Iterator
from typing import cast

import msgspec

from aerobee.model.numbers import parse_int
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
    """Return every request code that has a name, and some that have none."""
    named = {value for name, value in vars(codes.RequestCode).items() if name.isupper() and isinstance(value, int)}
    return sorted(named | {0, 7, 999, 32_767, 54_321, (1 << 31) - 1, -1})


def sound_ext(code: int) -> dict[str, str]:
    """Return ext fields that decode, with values that mean little."""
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
    """Yield requests of one code, each wrong in one way. The first is right."""
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
    """Yield bodies of the wrong shape."""
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
    """Yield bytes that no client of Aerobee would send."""
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


_PIECES = (
    b"\xff\xfe", b"\x00", b"\x01", b"\x02", b"-", b'"', b"../", b"%RETRY%", b"99999999999", b"x" * 33_000,
    b"KEYS\x01\xff\xfe\x02", b"TAGS\x01\xff\x02", b"UNIQ_KEY\x01\xc0\x02", b"DELAY\x0199\x02", b"DELAY\x01x\x02",
    b"TRAN_MSG\x01true\x02", b"TIMER_DELAY_SEC\x01x\x02", b"TIMER_DELIVER_MS\x01-1\x02", b"INNER_NUM\x01-5\x02",
    b"INNER_MULTI_DISPATCH\x01a,b\x02", b"CLUSTER\x01x\x02", b"WAIT\x01false\x02", b"REPLY_TO_CLIENT\x01c\x02",
    b"__CRC32#\x01x\x02", b"\xf0\x9f",
)  # fmt: skip


def wrong_sends(seed: int, count: int) -> Iterator[tuple[int, bytes]]:
    """Yield (opaque, frame) of sends whose frame is right and whose fields hold bytes that are no text."""
    rng = random.Random(seed)
    names = [
        codes.RequestCode.SEND_MESSAGE_V2,
        codes.RequestCode.SEND_BATCH_MESSAGE,
        codes.RequestCode.SEND_REPLY_MESSAGE_V2,
    ]
    topics = [b"wrong", b"%RETRY%g", b"%DLQ%g", b"SCHEDULE_TOPIC_XXXX", b"%LMQ%a"]
    for opaque in range(1, count + 1):
        ext = {
            b"a": b"group", b"b": rng.choice(topics), b"c": b"TBW102", b"d": b"4", b"e": b"0", b"f": b"0", b"g": b"1",
            b"h": b"0", b"i": b"UNIQ_KEY\x01A\x02KEYS\x01k\x02TAGS\x01t\x02", b"j": b"0", b"k": b"false",
            b"m": b"false",
        }  # fmt: skip
        body = (48).to_bytes(4, "big") + bytes(15) + b"\x04body\x00\x16UNIQ_KEY\x01AAAAAAAAAAAA\x02"
        for _ in range(rng.choice((1, 1, 2, 3))):
            if rng.randrange(4):
                name = rng.choice([*ext, b"i", b"i", b"i"])
                ext[name] = _spoilt(rng, ext[name])
            else:
                body = _spoilt(rng, body)
        yield opaque, _binary_frame(rng.choice(names), opaque, ext, body)


def _spoilt(rng: random.Random, value: bytes) -> bytes:
    at = rng.randrange(len(value) + 1)
    way = rng.randrange(5)
    if way == 0:
        return value[:at] + bytes([rng.randrange(256)]) + value[at + 1 :]
    if way == 1:
        return value[:at] + value[at + rng.randrange(1, 6) :]
    if way == 2:
        return rng.choice(TEXTS).encode("utf-8", "replace")
    return value[:at] + rng.choice(_PIECES) + value[at:]


def _binary_frame(code: int, opaque: int, ext: dict[bytes, bytes], body: bytes) -> bytes:
    fields = b"".join(
        len(name).to_bytes(2, "big") + name + len(value).to_bytes(4, "big") + value for name, value in ext.items()
    )
    head = code.to_bytes(2, "big") + b"\x00\x00\x01" + opaque.to_bytes(4, "big") + bytes(8)
    head += len(fields).to_bytes(4, "big") + fields
    return (4 + len(head) + len(body)).to_bytes(4, "big") + (len(head) | 1 << 24).to_bytes(4, "big") + head + body


class JunkPeer(asyncio.Protocol):
    """A connection that sends any bytes and notes what comes back."""

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
        """Return the opaques without an answer when the time is over or the connection is closed."""
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
    _, peer = await asyncio.get_running_loop().create_connection(JunkPeer, host, parse_int(port))
    return peer
