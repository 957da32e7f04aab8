"""Binary ext fields read without a dict, the send header as one object, and the answers to send and pull.

A send costs one scan of its header in either codec: binary here, JSON by a typed decode into the same object.
RocketMQ: RocketMQSerializable.mapDeserialize, SendMessageRequestHeaderV2, SendMessageResponseHeader,
PullMessageResponseHeader.
"""

from types import FunctionType
from typing import Final

from librt.strings import BytesWriter, read_i16_be, read_i32_be
from mypy_extensions import i64

from aerobee.errors import RemoteProtocolError
from aerobee.hot.log.properties import text_of
from aerobee.hot.wire.frame import Frame, binary_frame, json_frame, json_text, start_binary, write_field

EXT_FIELDS_MAX: Final = 1024
# a b e f g h are needed to store a message; Apache marks c and d as needed too and never misses them.
NEEDED_LETTERS: Final = 0b11110011
_TEXTS: Final = {0x61: "producer_group", 0x62: "topic", 0x63: "default_topic", 0x6E: "broker_name"}


class SendFields:
    """What a send carries. Absent fields are '' or 0, max_reconsume_times -1."""

    def __init__(
        self,
        producer_group: str,
        topic: str,
        default_topic: str,
        default_topic_queue_nums: int,
        queue_id: int,
        sys_flag: int,
        born_timestamp: int,
        flag: int,
        properties: bytes,
        reconsume_times: int,
        unit_mode: bool,
        max_reconsume_times: int,
        batch: bool,
        broker_name: str,
    ) -> None:
        self.producer_group: str = producer_group
        self.topic: str = topic
        self.default_topic: str = default_topic
        self.default_topic_queue_nums: int = default_topic_queue_nums
        self.queue_id: int = queue_id
        self.sys_flag: int = sys_flag
        self.born_timestamp: int = born_timestamp
        self.flag: int = flag
        self.properties: bytes = properties
        self.reconsume_times: int = reconsume_times
        self.unit_mode: bool = unit_mode
        self.max_reconsume_times: int = max_reconsume_times
        self.batch: bool = batch
        self.broker_name: str = broker_name


def ext_start(frame: Frame) -> int:
    """Where the ext fields of a binary frame begin; scan_frames has checked that they end at its body."""
    return frame.header_pos + 21 + read_i32_be(frame.buf, frame.header_pos + 13)


def _value_start(buf: bytes, at: i64, end: i64) -> i64:
    """Where the value of the ext field at `at` begins; its name lies between at + 2 and 4 before."""
    if at + 2 > end:
        raise RemoteProtocolError("an ext field's name does not fit the header")
    start: i64 = at + 6 + i64(read_i16_be(buf, at))
    if start < at + 6 or start > end:
        raise RemoteProtocolError("an ext field's name does not fit the header")
    return start


def _value_stop(buf: bytes, start: i64, end: i64) -> i64:
    """Where the value that begins at `start` ends."""
    stop: i64 = start + i64(read_i32_be(buf, start - 4))
    if stop < start or stop > end:
        raise RemoteProtocolError("an ext field's value does not fit the header")
    return stop


def ext_fields(frame: Frame) -> dict[str, str]:
    """All ext fields of a binary frame. As Apache reads: an empty value is absent, of twins the last wins."""
    fields: dict[str, str] = {}
    buf = frame.buf
    at: i64 = ext_start(frame)
    end: i64 = frame.body_pos
    count = 0
    while at < end:
        start: i64 = _value_start(buf, at, end)
        stop: i64 = _value_stop(buf, start, end)
        count += 1
        if count > EXT_FIELDS_MAX:
            raise RemoteProtocolError(f"more than {EXT_FIELDS_MAX} ext fields")
        if start > at + 6 and stop > start:
            key = buf[int(at + 2) : int(start - 4)].decode("utf-8", "replace")
            fields[key] = buf[int(start) : int(stop)].decode("utf-8", "replace")
        at = stop
    return fields


def find_field(frame: Frame, name: bytes) -> bytes | None:
    """One ext field of a binary frame, by name."""
    buf = frame.buf
    at: i64 = ext_start(frame)
    end: i64 = frame.body_pos
    wanted: i64 = len(name)
    while at < end:
        start: i64 = _value_start(buf, at, end)
        stop: i64 = _value_stop(buf, start, end)
        if start == at + 6 + wanted and buf[int(at + 2) : int(start - 4)] == name:
            return buf[int(start) : int(stop)]
        at = stop
    return None


def scan_send(frame: Frame) -> SendFields | None:
    """The fields of a binary SEND_MESSAGE_V2, by their one-letter names.

    None when a number is not plain decimal or a needed name is missing: the slow decode says what is wrong.
    """
    return scan_by_slices(frame) if _INTERPRETED else scan_by_bytes(frame)


def scan_by_slices(frame: Frame) -> SendFields | None:
    """The scan for when this file runs interpreted: few calls, and int() reads the digits."""
    send = SendFields("", "", "", 0, -1, 0, 0, 0, b"", 0, False, -1, False, "")
    buf = frame.buf
    at = ext_start(frame)
    end = frame.body_pos
    seen = 0
    while at < end:
        start = at + 7 if buf[at : at + 2] == b"\x00\x01" and at + 7 <= end else int(_value_start(buf, at, end))
        stop = start + read_i32_be(buf, start - 4)
        if stop < start or stop > end:
            raise RemoteProtocolError("an ext field's value does not fit the header")
        letter, value = buf[at + 2], buf[start:stop]
        if start == at + 7 and value:
            if letter in _TEXTS:
                setattr(send, _TEXTS[letter], text_of(value))
            elif letter == 0x69:  # i
                send.properties = value
            elif letter == 0x6B or letter == 0x6D:  # k m
                setattr(send, "unit_mode" if letter == 0x6B else "batch", value.lower() == b"true")
            else:
                digits = value[1:] if value[0] == 0x2D else value
                if len(digits) > 18 or not digits.isdigit() or not set_number(send, letter, int(value)):
                    return None
            if 0x61 <= letter <= 0x6E:
                seen |= 1 << (letter - 0x61)
        at = stop
    return send if seen & NEEDED_LETTERS == NEEDED_LETTERS else None


def scan_by_bytes(frame: Frame) -> SendFields | None:
    """The same compiled: no slice but of what is kept."""
    send = SendFields("", "", "", 0, -1, 0, 0, 0, b"", 0, False, -1, False, "")
    buf = frame.buf
    at: i64 = ext_start(frame)
    end: i64 = frame.body_pos
    seen: i64 = 0
    while at < end:
        start: i64 = _value_start(buf, at, end)
        stop: i64 = _value_stop(buf, start, end)
        if start == at + 7 and stop > start:
            letter: i64 = buf[at + 2]
            if not _set_field(send, letter, buf, start, stop):
                return None
            if 0x61 <= letter <= 0x6E:
                seen |= 1 << (letter - 0x61)
        at = stop
    return send if seen & NEEDED_LETTERS == NEEDED_LETTERS else None


def _set_field(send: SendFields, letter: i64, buf: bytes, start: i64, stop: i64) -> bool:
    """One field by its letter. False when its text is not what the type asks for."""
    if letter == 0x69:  # i
        send.properties = buf[int(start) : int(stop)]
        return True
    if letter == 0x61:  # a
        send.producer_group = text_of(buf[int(start) : int(stop)])
        return True
    if letter == 0x62:  # b
        send.topic = text_of(buf[int(start) : int(stop)])
        return True
    if letter == 0x63:  # c
        send.default_topic = text_of(buf[int(start) : int(stop)])
        return True
    if letter == 0x6E:  # n
        send.broker_name = text_of(buf[int(start) : int(stop)])
        return True
    if letter == 0x6B:  # k
        send.unit_mode = _is_true(buf, start, stop)
        return True
    if letter == 0x6D:  # m
        send.batch = _is_true(buf, start, stop)
        return True
    return _parse_number(send, letter, buf, start, stop)


def _parse_number(send: SendFields, letter: i64, buf: bytes, start: i64, stop: i64) -> bool:
    negative = buf[start] == 0x2D
    at: i64 = start + 1 if negative else start
    if at == stop or stop - at > 18:
        return False
    value: i64 = 0
    while at < stop:
        digit: i64 = buf[at]
        if digit < 0x30 or digit > 0x39:
            return False
        value = value * 10 + digit - 0x30
        at += 1
    return set_number(send, letter, -value if negative else value)


def set_number(send: SendFields, letter: i64, value: i64) -> bool:
    """One numeric field by its letter. False when it is too large."""
    if letter == 0x67:  # g
        send.born_timestamp = int(value)
        return True
    if value < -(1 << 31) or value > (1 << 31) - 1:
        return False
    if letter == 0x64:  # d
        send.default_topic_queue_nums = int(value)
    elif letter == 0x65:  # e
        send.queue_id = int(value)
    elif letter == 0x66:  # f
        send.sys_flag = int(value)
    elif letter == 0x68:  # h
        send.flag = int(value)
    elif letter == 0x6A:  # j
        send.reconsume_times = int(value)
    elif letter == 0x6C:  # l
        send.max_reconsume_times = int(value)
    return True


def _is_true(buf: bytes, start: i64, stop: i64) -> bool:
    return stop - start == 4 and buf[int(start) : int(stop)].lower() == b"true"


def encode_send_answer(
    codec: int,
    opaque: int,
    msg_id: str,
    queue_id: int,
    queue_offset: int,
    transaction_id: str,
    region: str,
    trace_on: bool,
    language: int,
    language_name: str,
    version: int,
) -> bytes:
    """The whole frame of a successful send's answer. '' for transaction_id leaves it out.

    RocketMQ: SendMessageProcessor.handlePutMessageResult with MSG_REGION and TRACE_ON of sendMessage.
    """
    trace = "true" if trace_on else "false"
    if codec == 0:
        transaction = '"transactionId":' + json_text(transaction_id) + "," if transaction_id else ""
        # The order is that of Apache's HashMap(256) of these names.
        return json_frame(
            f'{{"code":0,"extFields":{{"queueId":"{queue_id}",{transaction}"msgId":"{msg_id}","TRACE_ON":"{trace}",'
            f'"MSG_REGION":{json_text(region)},"queueOffset":"{queue_offset}"}},"flag":1,'
            f'"language":"{language_name}","opaque":{opaque},"serializeTypeCurrentRPC":"JSON","version":{version}}}',
            0,
        )
    head = BytesWriter()
    start_binary(head, 0, language, version, opaque, 1)
    out = BytesWriter()
    write_field(out, b"msgId", msg_id.encode())
    write_field(out, b"queueId", str(queue_id).encode())
    write_field(out, b"queueOffset", str(queue_offset).encode())
    if transaction_id:
        write_field(out, b"transactionId", transaction_id.encode("utf-8", "replace"))
    write_field(out, b"TRACE_ON", trace.encode())
    write_field(out, b"MSG_REGION", region.encode("utf-8", "replace"))
    return binary_frame(head.getvalue(), b"", out.getvalue(), 0)


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
    """Length words and header of a pull's answer; `body_size` bytes follow. Flags below 0 are left out.

    RocketMQ: PullMessageProcessor.composeResponseHeader; its remark is the name of the get status.
    """
    if codec == 0:
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


def encode_send_request(
    codec: int,
    code: int,
    opaque: int,
    command_flag: int,
    send: SendFields,
    body_size: int,
    language: int,
    language_name: str,
    version: int,
) -> bytes:
    """Length words and header of a SEND_MESSAGE_V2 or SEND_BATCH_MESSAGE; the body follows apart.

    Names go from a to n, which is also the order of Apache's map. Left out: max_reconsume_times below 0 and
    an empty broker name.
    """
    unit = "true" if send.unit_mode else "false"
    batch = "true" if send.batch else "false"
    if codec == 0:
        limit = f'"l":"{send.max_reconsume_times}",' if send.max_reconsume_times >= 0 else ""
        broker = f',"n":{json_text(send.broker_name)}' if send.broker_name else ""
        properties = json_text(send.properties.decode("utf-8", "replace"))
        return json_frame(
            f'{{"code":{code},"extFields":{{"a":{json_text(send.producer_group)},"b":{json_text(send.topic)},'
            f'"c":{json_text(send.default_topic)},"d":"{send.default_topic_queue_nums}","e":"{send.queue_id}",'
            f'"f":"{send.sys_flag}","g":"{send.born_timestamp}","h":"{send.flag}","i":{properties},'
            f'"j":"{send.reconsume_times}","k":"{unit}",{limit}"m":"{batch}"{broker}}},"flag":{command_flag},'
            f'"language":"{language_name}","opaque":{opaque},"serializeTypeCurrentRPC":"JSON","version":{version}}}',
            body_size,
        )
    head = BytesWriter()
    start_binary(head, code, language, version, opaque, command_flag)
    out = BytesWriter()
    write_field(out, b"a", send.producer_group.encode("utf-8", "replace"))
    write_field(out, b"b", send.topic.encode("utf-8", "replace"))
    write_field(out, b"c", send.default_topic.encode("utf-8", "replace"))
    write_field(out, b"d", str(send.default_topic_queue_nums).encode())
    write_field(out, b"e", str(send.queue_id).encode())
    write_field(out, b"f", str(send.sys_flag).encode())
    write_field(out, b"g", str(send.born_timestamp).encode())
    write_field(out, b"h", str(send.flag).encode())
    write_field(out, b"i", send.properties)
    write_field(out, b"j", str(send.reconsume_times).encode())
    write_field(out, b"k", unit.encode())
    if send.max_reconsume_times >= 0:
        write_field(out, b"l", str(send.max_reconsume_times).encode())
    write_field(out, b"m", batch.encode())
    if send.broker_name:
        write_field(out, b"n", send.broker_name.encode("utf-8", "replace"))
    return binary_frame(head.getvalue(), b"", out.getvalue(), body_size)


_INTERPRETED: Final = isinstance(scan_send, FunctionType)
