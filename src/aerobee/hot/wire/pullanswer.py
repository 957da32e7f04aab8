"""The head of a pull's answer, written with every pull: all that is equal in most answers is prepared once.

RocketMQ: PullMessageProcessor.composeResponseHeader.
"""

from librt.strings import BytesWriter, write_i32_be
from mypy_extensions import i32, i64

from aerobee.hot.wire.sendanswer import Digits


class PullAnswerForm:
    """The parts of a JSON answer with messages, for one broker."""

    def __init__(self, language_name: str, version: int) -> None:
        self._flag: bytes = f'}},"flag":1,"language":"{language_name}","opaque":'.encode()
        self._end: bytes = f',"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":{version}}}'.encode()
        # What the groups and topics of all pulls mostly agree in, and the text that it gives.
        self._suggested: i64 = -1
        self._group_flag: i64 = -1
        self._topic_flag: i64 = -1
        self._start: bytes = b""
        self._middle: bytes = b""
        self._next = Digits()
        self._max = Digits()
        self._min = Digits()
        self._opaque = Digits()

    def _prepare(self, suggested: i64, topic_flag: i64, group_flag: i64) -> None:
        self._suggested = suggested
        self._group_flag = group_flag
        self._topic_flag = topic_flag
        self._start = (
            f'{{"code":0,"extFields":{{"suggestWhichBrokerId":"{suggested}","groupSysFlag":"{group_flag}",'
            '"nextBeginOffset":"'
        ).encode()
        self._middle = f'","topicSysFlag":"{topic_flag}"'.encode() + self._flag

    def found(
        self,
        opaque: int,
        suggested: int,
        topic_flag: int,
        group_flag: int,
        next_offset: int,
        min_offset: int,
        max_offset: int,
        body_size: int,
    ) -> bytes:
        """Length words and header; `body_size` bytes of records follow. No flag is below 0."""
        if suggested != self._suggested or group_flag != self._group_flag or topic_flag != self._topic_flag:
            self._prepare(suggested, topic_flag, group_flag)
        size: i64 = len(self._start) + len(self._middle) + len(self._end) + 30
        size += self._next.use(next_offset) + self._max.use(max_offset) + self._min.use(min_offset)
        size += self._opaque.use(opaque)
        out = BytesWriter()
        write_i32_be(out, i32(size + 4 + body_size))
        write_i32_be(out, i32(size))
        out.write(self._start)
        out.write(self._next.head)
        out.write(self._next.rest)
        out.write(b'","maxOffset":"')
        out.write(self._max.head)
        out.write(self._max.rest)
        out.write(b'","minOffset":"')
        out.write(self._min.head)
        out.write(self._min.rest)
        out.write(self._middle)
        out.write(self._opaque.head)
        out.write(self._opaque.rest)
        out.write(self._end)
        return out.getvalue()
