"""Pulls on the wire: the reader of the JSON header in place, and the answer in both codecs.

`scan_json_pull` exists because every pull passes through it: compiled, it takes a third of the time of a general
decoder. It returns None for a header that it does not understand completely. protocol.pulling then decodes the header
in one typed step. If that fails too, the handler decodes a dict of its fields, which tells what is wrong.
RocketMQ: PullMessageRequestHeader, RemotingSerializable.encode, PullMessageProcessor.composeResponseHeader.
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be
from mypy_extensions import i32, i64

from aerobee.hot.wire.frame import (
    CODEC_JSON,
    LENGTH_SIZE,
    Digits,
    Frame,
    binary_frame,
    json_frame,
    json_text,
    start_binary,
    write_field,
)
from aerobee.hot.wire.jsonheader import LastText, ends_well, find_ext, json_number, text_end

# The quote and the first seven bytes of each name, and the rest of the longer names. A rest has at most seven bytes,
# as mypyc makes an object of a larger number.
_TOPIC: Final = 0x22746F706963223A  # "topic":
_QUEUE_ID: Final = 0x2271756575654964  # "queueId
_SYS_FLAG: Final = 0x22737973466C6167  # "sysFlag
_CONSUME: Final = 0x22636F6E73756D65  # "consume
_R_GROUP: Final = 0x7247726F7570  # rGroup
_QUEUE_OF: Final = 0x2271756575654F66  # "queueOf
_FSET: Final = 0x66736574  # fset
_MAX_MSG_N: Final = 0x226D61784D73674E  # "maxMsgN
_UMS: Final = 0x756D73  # ums
_MAX_MSG_B: Final = 0x226D61784D736742  # "maxMsgB
_YTES: Final = 0x79746573  # ytes
_COMMIT_O: Final = 0x22636F6D6D69744F  # "commitO
_FFSET: Final = 0x6666736574  # ffset
_SUB_VERS: Final = 0x2273756256657273  # "subVers
_ION: Final = 0x696F6E  # ion
_SUSPEND: Final = 0x2273757370656E64  # "suspend
_TIMEOUT: Final = 0x54696D656F7574  # Timeout
_MILLIS: Final = 0x4D696C6C6973  # Millis
_SUBSCRI: Final = 0x2273756273637269  # "subscri
_PTION: Final = 0x7074696F6E  # ption
_EXPRESS: Final = 0x2265787072657373  # "express
_ION_TYPE: Final = 0x696F6E54797065  # ionType
_TO_VALUE: Final = 0x223A22  # ":"

# A bit for each field. The first nine must be there.
CONSUMER_GROUP: Final = 0x1
TOPIC: Final = 0x2
QUEUE_ID: Final = 0x4
QUEUE_OFFSET: Final = 0x8
MAX_MSG_NUMS: Final = 0x10
SYS_FLAG: Final = 0x20
COMMIT_OFFSET: Final = 0x40
SUB_VERSION: Final = 0x80
SUSPEND_TIMEOUT_MILLIS: Final = 0x100
SUBSCRIPTION: Final = 0x200
EXPRESSION_TYPE: Final = 0x400
MAX_MSG_BYTES: Final = 0x800
_NEEDED: Final = 0x1FF
_TEXTS: Final = CONSUMER_GROUP | TOPIC | SUBSCRIPTION | EXPRESSION_TYPE
# These fields have no use here, but their values are not texts. A general decoder has to check them.
_TYPED: Final = frozenset((b"requestSource", b"nsd", b"oway", b"lo"))
_MARGIN: Final = bytes(40)

_MAX_OFFSET: Final = b'","maxOffset":"'
_MIN_OFFSET: Final = b'","minOffset":"'

_group: Final = LastText()
_topic: Final = LastText()
_subscription: Final = LastText()
_expression_type: Final = LastText()


class PullFields:
    """The fields of a pull. On the wire their names are in camel case, as in PullMessageRequestHeader."""

    def __init__(
        self,
        *,
        consumer_group: str = "",
        topic: str = "",
        queue_id: int = 0,
        queue_offset: int = 0,
        max_msg_nums: int = 0,
        sys_flag: int = 0,
        commit_offset: int = 0,
        suspend_timeout_millis: int = 0,
        subscription: str | None = None,
        sub_version: int = 0,
        expression_type: str | None = None,
        max_msg_bytes: int | None = None,
    ) -> None:
        self.consumer_group = consumer_group
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.max_msg_nums = max_msg_nums
        self.sys_flag = sys_flag
        self.commit_offset = commit_offset
        self.suspend_timeout_millis = suspend_timeout_millis
        self.subscription = subscription
        self.sub_version = sub_version
        self.expression_type = expression_type
        self.max_msg_bytes = max_msg_bytes


def scan_json_pull(frame: Frame) -> PullFields | None:
    """Return the fields of a JSON PULL_MESSAGE, and set the opaque and the flag of the frame; None in another codec."""
    if frame.codec != CODEC_JSON:
        return None
    # Eight bytes are read at a time, also after the header, where the buffer usually ends.
    buf = frame.buf[frame.header_pos : frame.body_pos] + _MARGIN
    end: i64 = i64(len(buf)) - len(_MARGIN)
    last: i64 = end + 8
    at: i64
    seen: i64
    at, seen = find_ext(frame, buf, 0, end, last)
    if at < 0:
        return None
    pull = PullFields()
    at = _scan_ext(pull, buf, at, last)
    return pull if ends_well(frame, buf, at, end, last, seen) else None


def _scan_ext(pull: PullFields, buf: bytes, at: i64, last: i64) -> i64:
    """Read the object at `at`, and return the position after it, or -1."""
    if buf[at] != 0x7B:
        return -1
    seen: i64 = 0
    while True:
        at += 1
        if at > last or buf[at] != 0x22:
            return -1
        bit, value = _name_at(buf, at)
        if seen & bit:
            return -1
        seen |= bit
        if bit == 0:
            stop: i64 = text_end(buf, at + 1, last)
            if stop < 0 or buf[int(at + 1) : int(stop)] in _TYPED or buf[stop + 1] != 0x3A or buf[stop + 2] != 0x22:
                return -1
            at = text_end(buf, stop + 3, last)
            if at >= 0:
                at += 1
        elif bit & _TEXTS:
            at = _set_text(pull, bit, buf, value, last)
        else:
            at = _set_number(pull, bit, buf, value)
        if at < 0:
            return -1
        if buf[at] != 0x2C:
            break
    if buf[at] != 0x7D or seen & _NEEDED != _NEEDED:
        return -1
    return at + 1


def _name_at(buf: bytes, at: i64) -> tuple[i64, i64]:
    """Return the bit of the field whose name begins at `at`, and where its text begins. An unknown name gives 0."""
    word: i64 = read_i64_be(buf, at)
    rest: i64 = read_i64_be(buf, at + 8)
    bit: i64 = 0
    size: i64 = 0
    if word == _TOPIC:
        bit = TOPIC
        size = 5
    elif word == _QUEUE_ID:
        bit = QUEUE_ID
        size = 7
    elif word == _SYS_FLAG:
        bit = SYS_FLAG
        size = 7
    elif word == _CONSUME and rest >> 16 == _R_GROUP:
        bit = CONSUMER_GROUP
        size = 13
    elif word == _QUEUE_OF and rest >> 32 == _FSET:
        bit = QUEUE_OFFSET
        size = 11
    elif word == _MAX_MSG_N and rest >> 40 == _UMS:
        bit = MAX_MSG_NUMS
        size = 10
    elif word == _COMMIT_O and rest >> 24 == _FFSET:
        bit = COMMIT_OFFSET
        size = 12
    elif word == _SUB_VERS and rest >> 40 == _ION:
        bit = SUB_VERSION
        size = 10
    elif word == _SUSPEND and rest >> 8 == _TIMEOUT and read_i64_be(buf, at + 15) >> 16 == _MILLIS:
        bit = SUSPEND_TIMEOUT_MILLIS
        size = 20
    elif word == _SUBSCRI and rest >> 24 == _PTION:
        bit = SUBSCRIPTION
        size = 12
    elif word == _EXPRESS and rest >> 8 == _ION_TYPE:
        bit = EXPRESSION_TYPE
        size = 14
    elif word == _MAX_MSG_B and rest >> 32 == _YTES:
        bit = MAX_MSG_BYTES
        size = 11
    if i64(read_i32_be(buf, at + size + 1)) >> 8 != _TO_VALUE:
        return 0, 0
    return bit, at + size + 4


def _set_text(pull: PullFields, bit: i64, buf: bytes, start: i64, last: i64) -> i64:
    """Set a text, and return the position after its closing quote, or -1."""
    stop: i64 = text_end(buf, start, last)
    if stop < 0:
        return -1
    if bit == CONSUMER_GROUP:
        pull.consumer_group = _group.take(buf, start, stop)
    elif bit == TOPIC:
        pull.topic = _topic.take(buf, start, stop)
    elif bit == SUBSCRIPTION:
        pull.subscription = _subscription.take(buf, start, stop)
    else:
        pull.expression_type = _expression_type.take(buf, start, stop)
    return stop + 1


def _set_number(pull: PullFields, bit: i64, buf: bytes, start: i64) -> i64:
    """Set a number, and return the position after its closing quote, or -1."""
    stop: i64
    value: i64
    stop, value = json_number(buf, start)
    if stop < 0 or buf[stop] != 0x22:
        return -1
    if bit == QUEUE_OFFSET:
        pull.queue_offset = int(value)
    elif bit == COMMIT_OFFSET:
        pull.commit_offset = int(value)
    elif bit == SUB_VERSION:
        pull.sub_version = int(value)
    elif bit == SUSPEND_TIMEOUT_MILLIS:
        pull.suspend_timeout_millis = int(value)
    elif value < -(1 << 31) or value > (1 << 31) - 1:
        return -1
    elif bit == QUEUE_ID:
        pull.queue_id = int(value)
    elif bit == MAX_MSG_NUMS:
        pull.max_msg_nums = int(value)
    elif bit == SYS_FLAG:
        pull.sys_flag = int(value)
    else:
        pull.max_msg_bytes = int(value)
    return stop + 1


def encode_pull_answer(
    codec: int,
    code: int,
    opaque: int,
    suggest_which_broker_id: int,
    next_begin_offset: int,
    min_offset: int,
    max_offset: int,
    topic_sys_flag: int,
    group_sys_flag: int,
    remark: str,
    body_size: int,
    language: int,
    language_name: str,
    version: int,
) -> bytes:
    """Return the length words and the header of any answer to a pull, for a body of `body_size` bytes.

    A flag below 0 is left out. The remark is the name of the get status, as in Apache.
    """
    if codec == CODEC_JSON:
        topic_flag = f',"topicSysFlag":"{topic_sys_flag}"' if topic_sys_flag >= 0 else ""
        group_flag = f'"groupSysFlag":"{group_sys_flag}",' if group_sys_flag >= 0 else ""
        noted = f'"remark":{json_text(remark)},' if remark else ""
        return json_frame(
            f'{{"code":{code},"extFields":{{"suggestWhichBrokerId":"{suggest_which_broker_id}",{group_flag}'
            f'"nextBeginOffset":"{next_begin_offset}","maxOffset":"{max_offset}","minOffset":"{min_offset}"'
            f'{topic_flag}}},"flag":1,"language":"{language_name}","opaque":{opaque},{noted}'
            f'"serializeTypeCurrentRPC":"JSON","version":{version}}}',
            body_size,
        )
    head = BytesWriter()
    start_binary(head, code, language, version, opaque, 1)
    out = BytesWriter()
    write_field(out, b"suggestWhichBrokerId", str(suggest_which_broker_id).encode())
    write_field(out, b"nextBeginOffset", str(next_begin_offset).encode())
    write_field(out, b"minOffset", str(min_offset).encode())
    write_field(out, b"maxOffset", str(max_offset).encode())
    if topic_sys_flag >= 0:
        write_field(out, b"topicSysFlag", str(topic_sys_flag).encode())
    if group_sys_flag >= 0:
        write_field(out, b"groupSysFlag", str(group_sys_flag).encode())
    return binary_frame(head.getvalue(), remark.encode("utf-8", "replace"), out.getvalue(), body_size)


class PullAnswerForm:
    """The JSON answer with messages. The parts that are the same in most answers of a broker are prepared once."""

    def __init__(self, language_name: str, version: int) -> None:
        self._flag: bytes = f'}},"flag":1,"language":"{language_name}","opaque":'.encode()
        self._end: bytes = f',"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":{version}}}'.encode()
        # Most groups and topics agree in these. The texts below are made from them.
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
        """Return the length words and the header, for `body_size` bytes of records. No flag may be below 0."""
        if suggested != self._suggested or group_flag != self._group_flag or topic_flag != self._topic_flag:
            self._prepare(suggested, topic_flag, group_flag)
        size: i64 = len(self._start) + len(self._middle) + len(self._end) + len(_MAX_OFFSET) + len(_MIN_OFFSET)
        size += self._next.use(next_offset) + self._max.use(max_offset) + self._min.use(min_offset)
        size += self._opaque.use(opaque)
        out = BytesWriter()
        write_i32_be(out, i32(size + LENGTH_SIZE + body_size))
        write_i32_be(out, i32(size))
        out.write(self._start)
        out.write(self._next.head)
        out.write(self._next.rest)
        out.write(_MAX_OFFSET)
        out.write(self._max.head)
        out.write(self._max.rest)
        out.write(_MIN_OFFSET)
        out.write(self._min.head)
        out.write(self._min.rest)
        out.write(self._middle)
        out.write(self._opaque.head)
        out.write(self._opaque.rest)
        out.write(self._end)
        return out.getvalue()
