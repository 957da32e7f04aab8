"""The JSON answers of POP that are written in one step: messages that were found, and success without more.

`protocol.command` writes all others. Tests compare the two. RocketMQ: PopMessageResponseHeader, RemotingSerializable.
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_be
from mypy_extensions import i32, i64

from aerobee.hot.wire.frame import LENGTH_SIZE, Digits

_COMMA: Final = 0x2C
_START: Final = b'{"code":0,"extFields":{"invisibleTime":"'
_START_OFFSETS: Final = b'","startOffsetInfo":"'
_REST: Final = b'","restNum":"'
_POP_TIME: Final = b'","popTime":"'
_REVIVE: Final = b'","reviveQid":"'
_OFFSETS: Final = b'","msgOffsetInfo":"'

_number: Final = Digits()


def numbers_text(numbers: list[int]) -> bytes:
    """Return numbers that are not negative as a text, with commas between them."""
    out = BytesWriter()
    is_first = True
    for number in numbers:
        if not is_first:
            out.append(_COMMA)
        is_first = False
        _number.use(number)
        out.write(_number.head)
        out.write(_number.rest)
    return out.getvalue()


class PopAnswerForm:
    """Writes answers of one broker. Texts that most of them share are prepared once."""

    def __init__(self, language_name: str, version: int) -> None:
        last = f'"serializeTypeCurrentRPC":"JSON","version":{version}}}'
        self._flag: bytes = f'"}},"flag":1,"language":"{language_name}","opaque":'.encode()
        self._end: bytes = f',"remark":"FOUND",{last}'.encode()
        self._done: bytes = f'{{"code":0,"flag":1,"language":"{language_name}","opaque":'.encode()
        self._done_end: bytes = f",{last}".encode()
        self._opaque = Digits()

    def found(
        self,
        opaque: int,
        pop_time: int,
        invisible_ms: int,
        revive_queue: int,
        rest: int,
        start_offsets: str,
        offsets: str,
        body_size: int,
    ) -> bytes:
        """Return the length words and the header, for `body_size` bytes of records."""
        text = BytesWriter()
        text.write(_START)
        text.write(str(invisible_ms).encode())
        text.write(_START_OFFSETS)
        text.write(start_offsets.encode())
        text.write(_REST)
        text.write(str(rest).encode())
        text.write(_POP_TIME)
        text.write(str(pop_time).encode())
        text.write(_REVIVE)
        text.write(str(revive_queue).encode())
        text.write(_OFFSETS)
        text.write(offsets.encode())
        text.write(self._flag)
        self._opaque.use(opaque)
        text.write(self._opaque.head)
        text.write(self._opaque.rest)
        text.write(self._end)
        header = text.getvalue()
        size: i64 = len(header)
        out = BytesWriter()
        write_i32_be(out, i32(size + LENGTH_SIZE + body_size))
        write_i32_be(out, i32(size))
        out.write(header)
        return out.getvalue()

    def done(self, opaque: int) -> bytes:
        """Return the whole frame that says success and nothing more."""
        size: i64 = len(self._done) + len(self._done_end) + self._opaque.use(opaque)
        out = BytesWriter()
        write_i32_be(out, i32(size + LENGTH_SIZE))
        write_i32_be(out, i32(size))
        out.write(self._done)
        out.write(self._opaque.head)
        out.write(self._opaque.rest)
        out.write(self._done_end)
        return out.getvalue()
