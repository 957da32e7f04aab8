"""The JSON header of a pull read in place, as known writers make it: no blanks, plain texts, no name twice.

What is written in any other way gives None, and protocol.pulljson decodes it whole: so both give the same, and only
that one says what is wrong. RocketMQ: RemotingSerializable.encode, PullMessageRequestHeader.
"""

from typing import Final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from aerobee.hot.wire.frame import Frame
from aerobee.hot.wire.jsonheader import ends_well, find_ext
from aerobee.hot.wire.jsontext import json_number, text_end
from aerobee.hot.wire.lasttext import LastText

# The quote and seven bytes of a name, and what of it follows. None of eight letters: such a number would be an object.
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

_MARGIN: Final = bytes(40)
# Bits of what was seen; the first nine must be there.
_NEEDED: Final = 0x1FF
_TEXT_BITS: Final = 0x603
# Names that matter to nobody here but whose values are no texts: whoever writes them is decoded whole.
_TYPED: Final = frozenset((b"requestSource", b"nsd", b"oway", b"lo"))

_group: Final = LastText()
_topic: Final = LastText()
_subscription: Final = LastText()
_expression_type: Final = LastText()


class PullFields:
    """What a pull asks. The names are those of PullMessageRequestHeader."""

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
    """The fields of a JSON PULL_MESSAGE; the frame's opaque and flag are those of the header."""
    # Eight bytes are read at a time, also beyond the header, behind which mostly nothing comes.
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
    """What follows the object at `at`; -1 when it is not read here."""
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
        elif bit & _TEXT_BITS:
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
    """The bit of the field whose name's quote is at `at`, and where its value's text begins; 0 for any other name."""
    word: i64 = read_i64_be(buf, at)
    rest: i64 = read_i64_be(buf, at + 8)
    bit: i64 = 0
    size: i64 = 0
    if word == _TOPIC:
        bit = 0x2
        size = 5
    elif word == _QUEUE_ID:
        bit = 0x4
        size = 7
    elif word == _SYS_FLAG:
        bit = 0x20
        size = 7
    elif word == _CONSUME and rest >> 16 == _R_GROUP:
        bit = 0x1
        size = 13
    elif word == _QUEUE_OF and rest >> 32 == _FSET:
        bit = 0x8
        size = 11
    elif word == _MAX_MSG_N and rest >> 40 == _UMS:
        bit = 0x10
        size = 10
    elif word == _COMMIT_O and rest >> 24 == _FFSET:
        bit = 0x40
        size = 12
    elif word == _SUB_VERS and rest >> 40 == _ION:
        bit = 0x80
        size = 10
    elif word == _SUSPEND and rest >> 8 == _TIMEOUT and read_i64_be(buf, at + 15) >> 16 == _MILLIS:
        bit = 0x100
        size = 20
    elif word == _SUBSCRI and rest >> 24 == _PTION:
        bit = 0x200
        size = 12
    elif word == _EXPRESS and rest >> 8 == _ION_TYPE:
        bit = 0x400
        size = 14
    elif word == _MAX_MSG_B and rest >> 32 == _YTES:
        bit = 0x800
        size = 11
    if i64(read_i32_be(buf, at + size + 1)) >> 8 != _TO_VALUE:
        return 0, 0
    return bit, at + size + 4


def _set_text(pull: PullFields, bit: i64, buf: bytes, start: i64, last: i64) -> i64:
    """What follows the closing quote, or -1."""
    stop: i64 = text_end(buf, start, last)
    if stop < 0:
        return -1
    if bit == 0x1:
        pull.consumer_group = _group.take(buf, start, stop)
    elif bit == 0x2:
        pull.topic = _topic.take(buf, start, stop)
    elif bit == 0x200:
        pull.subscription = _subscription.take(buf, start, stop)
    else:
        pull.expression_type = _expression_type.take(buf, start, stop)
    return stop + 1


def _set_number(pull: PullFields, bit: i64, buf: bytes, start: i64) -> i64:
    """What follows the closing quote, or -1."""
    stop: i64
    value: i64
    stop, value = json_number(buf, start)
    if stop < 0 or buf[stop] != 0x22:
        return -1
    if bit == 0x8:
        pull.queue_offset = int(value)
    elif bit == 0x40:
        pull.commit_offset = int(value)
    elif bit == 0x80:
        pull.sub_version = int(value)
    elif bit == 0x100:
        pull.suspend_timeout_millis = int(value)
    elif value < -(1 << 31) or value > (1 << 31) - 1:
        return -1
    elif bit == 0x4:
        pull.queue_id = int(value)
    elif bit == 0x10:
        pull.max_msg_nums = int(value)
    elif bit == 0x20:
        pull.sys_flag = int(value)
    else:
        pull.max_msg_bytes = int(value)
    return stop + 1
