"""Sends on the wire: the table of their fields, the readers of the header in both codecs, and the answer.

A send is read by one of four decoders, all of which fill SendFields:
- `scan_json_send` reads the JSON header in place, `scan_binary_send` the binary one. Compiled, they take a third of the
  time of a general decoder, and every message of every producer passes through here. They return None for a header
  that they do not understand completely.
- protocol.sending then decodes the header in one typed step or, as the last resort, through a dict of its fields.
  Only that one says what is wrong.
- BATCH_ROWS has a header of its own.

RocketMQ: SendMessageRequestHeaderV2, RemotingSerializable.encode, RocketMQSerializable.mapDeserialize,
SendMessageProcessor.handlePutMessageResult, SendMessageResponseHeader.
"""

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_le, write_i32_be, write_i64_be, write_i64_le
from mypy_extensions import i32, i64, u8

from aerobee.hot.wire.frame import (
    BINARY_EXT_POS,
    CODEC_BINARY,
    EXT_FIXED_SIZE,
    EXT_NAME_POS,
    LENGTH_SIZE,
    Digits,
    Frame,
    ext_start,
    json_text,
    small_number,
    text_of,
    value_start,
    value_stop,
    write_field,
)
from aerobee.hot.wire.jsonheader import LastText, ends_well, find_ext, json_number, pair_end, plain_bytes, text_end

# The fields of a send. SEND_MESSAGE_V2 names each by a letter, given here as its character code, with which compiled
# code compares the bytes it reads. SEND_MESSAGE names them by the attributes of SendFields in camel case.
PRODUCER_GROUP: Final = 0x61  # a
TOPIC: Final = 0x62  # b
DEFAULT_TOPIC: Final = 0x63  # c
DEFAULT_TOPIC_QUEUE_NUMS: Final = 0x64  # d
QUEUE_ID: Final = 0x65  # e
SYS_FLAG: Final = 0x66  # f
BORN_TIMESTAMP: Final = 0x67  # g
FLAG: Final = 0x68  # h
PROPERTIES: Final = 0x69  # i
RECONSUME_TIMES: Final = 0x6A  # j
UNIT_MODE: Final = 0x6B  # k
MAX_RECONSUME_TIMES: Final = 0x6C  # l
BATCH: Final = 0x6D  # m
BROKER_NAME: Final = 0x6E  # n

# The wire name of each attribute in SEND_MESSAGE_V2. The header classes and the client's frames are made from it.
SEND_V2_NAMES: Final = {
    "producer_group": chr(PRODUCER_GROUP),
    "topic": chr(TOPIC),
    "default_topic": chr(DEFAULT_TOPIC),
    "default_topic_queue_nums": chr(DEFAULT_TOPIC_QUEUE_NUMS),
    "queue_id": chr(QUEUE_ID),
    "sys_flag": chr(SYS_FLAG),
    "born_timestamp": chr(BORN_TIMESTAMP),
    "flag": chr(FLAG),
    "properties": chr(PROPERTIES),
    "reconsume_times": chr(RECONSUME_TIMES),
    "unit_mode": chr(UNIT_MODE),
    "max_reconsume_times": chr(MAX_RECONSUME_TIMES),
    "batch": chr(BATCH),
    "broker_name": chr(BROKER_NAME),
}

_FIRST: Final = PRODUCER_GROUP
_LAST: Final = BROKER_NAME
# A bit for each letter. Without these fields a message cannot be stored. Apache declares the default topic and its
# queue count as needed too, but accepts sends without them.
_NEEDED: Final = (
    1 << (PRODUCER_GROUP - _FIRST)
    | 1 << (TOPIC - _FIRST)
    | 1 << (QUEUE_ID - _FIRST)
    | 1 << (SYS_FLAG - _FIRST)
    | 1 << (BORN_TIMESTAMP - _FIRST)
    | 1 << (FLAG - _FIRST)
)

_TRUE: Final = 0x74727565
_FALS: Final = 0x66616C73

# Properties that the broker acts on, or must not store as they are.
# RocketMQ: SendMessageProcessor, HookUtils, CommitLog.
SLOW_NAMES: Final = frozenset(
    (
        b"DELAY",
        b"TIMER_DELAY_SEC",
        b"TIMER_DELAY_MS",
        b"TIMER_DELIVER_MS",
        b"TIMER_DEL_UNIQKEY",
        b"TIMER_OUT_MS",
        b"TRAN_MSG",
        b"POP_CK",
        b"CLUSTER",
        b"INNER_MULTI_DISPATCH",
        b"INNER_MULTI_QUEUE_OFFSET",
        b"INNER_NUM",
        b"INNER_BASE",
        b"__LITE_TOPIC",
        b"_SYS_MSG_PRIORITY_",
        b"__CRC32#",
        b"REPLY_TO_CLIENT",
        b"MSG_TYPE",
        b"__AEROBEE_PID",
    )
)
# A bit for each of the letters from @ to _ that these names begin with. All names have more than four letters.
_SLOW_FIRSTS: Final = sum({1 << (name[0] - 0x40) for name in SLOW_NAMES})
_TAGS: Final = 0x54414753
_KEYS: Final = 0x4B455953
_WAIT: Final = 0x57414954
# UNIQ_KEY in two words, as mypyc makes an object of a number beyond 62 bits.
_UNIQ: Final = 0x554E4951
_KEY: Final = 0x5F4B4559

PLAIN: Final = 0
NO_WAIT: Final = 1
SLOW: Final = 2

# What follows are the constant parts of an answer.
_HEX: Final = [b"%02X" % i for i in range(256)]
# A message id ends with the physical offset. The digits above the last two bytes of the offset seldom change.
_LOW: Final = 0xFFFF
_LOW_DIGITS: Final = 4
_JSON_TRANSACTION: Final = b'","transactionId":"'
_JSON_MSG_ID: Final = b'","msgId":"'
_MSG_ID: Final = b"\x00\x05msgId"
_QUEUE_ID: Final = b"\x00\x07queueId"
_QUEUE_OFFSET: Final = b"\x00\x0bqueueOffset"
_TRANSACTION: Final = b"\x00\x0dtransactionId"
_VALUE_LENGTH: Final = 4

_group: Final = LastText()
_topic: Final = LastText()
_default_topic: Final = LastText()
_broker_name: Final = LastText()


class SendFields:
    """The fields of a send. A field that is absent is '' or 0, and max_reconsume_times is -1."""

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


def scan_json_send(frame: Frame) -> SendFields | None:
    """Return the fields of a JSON SEND_MESSAGE_V2, and set the opaque and the flag of the frame."""
    buf = frame.buf
    end: i64 = frame.body_pos
    # Eight bytes are read at a time, also after the header. `ends_well` refuses a value that ends there.
    last: i64 = i64(len(buf)) - 16
    at: i64
    seen: i64
    at, seen = find_ext(frame, buf, frame.header_pos, end, last)
    if at < 0:
        return None
    send = SendFields("", "", "", 0, -1, 0, 0, 0, b"", 0, False, -1, False, "")
    at = _scan_ext(send, buf, at, last)
    return send if ends_well(frame, buf, at, end, last, seen) else None


def _scan_ext(send: SendFields, buf: bytes, at: i64, last: i64) -> i64:
    """Read the object at `at`, and return the position after it, or -1."""
    if buf[at] != 0x7B:
        return -1
    seen: i64 = 0
    while True:
        at += 1
        if at > last:
            return -1
        word: i64 = i64(read_i32_be(buf, at))
        letter: i64 = (word >> 16) & 0xFF
        if word & 0xFF00FFFF != 0x2200223A or letter < _FIRST or letter > _LAST:
            at = pair_end(buf, at, last)
        else:
            bit: i64 = 1 << (letter - _FIRST)
            if buf[at + 4] != 0x22 or seen & bit:
                return -1
            seen |= bit
            at = _set_json(send, letter, buf, at + 5, last)
        if at < 0:
            return -1
        if buf[at] != 0x2C:
            break
    if buf[at] != 0x7D or seen & _NEEDED != _NEEDED:
        return -1
    return at + 1


def _set_json(send: SendFields, letter: i64, buf: bytes, start: i64, last: i64) -> i64:
    """Set the field whose text goes on at `start`, and return the position after its closing quote, or -1."""
    if letter == PROPERTIES:
        return _set_properties(send, buf, start, last)
    stop: i64
    # Properties, the only text among these, are read above.
    if DEFAULT_TOPIC_QUEUE_NUMS <= letter <= RECONSUME_TIMES or letter == MAX_RECONSUME_TIMES:
        value: i64
        stop, value = json_number(buf, start)
        if stop < 0 or buf[stop] != 0x22 or not _set_number(send, letter, value):
            return -1
        return stop + 1
    stop = text_end(buf, start, last)
    if stop < 0:
        return -1
    if letter == PRODUCER_GROUP:
        send.producer_group = _group.take(buf, start, stop)
    elif letter == TOPIC:
        send.topic = _topic.take(buf, start, stop)
    elif letter == DEFAULT_TOPIC:
        send.default_topic = _default_topic.take(buf, start, stop)
    elif letter == BROKER_NAME:
        send.broker_name = _broker_name.take(buf, start, stop)
    elif stop - start == 4 and read_i32_be(buf, start) == _TRUE:
        if letter == UNIT_MODE:
            send.unit_mode = True
        else:
            send.batch = True
    elif stop - start != 5 or read_i32_be(buf, start) != _FALS or buf[start + 4] != 0x65:
        return -1
    return stop + 1


def _set_properties(send: SendFields, buf: bytes, at: i64, last: i64) -> i64:
    """Set the properties, whose separators are escaped, and return the position after their closing quote, or -1."""
    out = BytesWriter()
    size: i64 = 0
    while at <= last:
        word: i64 = read_i64_le(buf, at)
        plain: i64 = plain_bytes(word)
        if plain:
            write_i64_le(out, word)
            at += plain
            size += plain
            if plain == 8:
                continue
            out.truncate(size)
        c: i64 = buf[at]
        if c == 0x22:
            send.properties = out.getvalue()
            return at + 1
        if c != 0x5C:
            return -1
        c = buf[at + 1]
        if c == 0x75:
            c = i64(read_i32_be(buf, at + 2)) - 0x30303030
            if c != 1 and c != 2:
                return -1
            at += 6
        elif c == 0x22 or c == 0x5C or c == 0x2F:
            at += 2
        else:
            return -1
        out.append(u8(c))
        size += 1
    return -1


def scan_binary_send(frame: Frame) -> SendFields | None:
    """Return the fields of a binary SEND_MESSAGE_V2, or None if a number is not plain decimal or a field is missing."""
    send = SendFields("", "", "", 0, -1, 0, 0, 0, b"", 0, False, -1, False, "")
    buf = frame.buf
    at: i64 = ext_start(frame)
    end: i64 = frame.body_pos
    seen: i64 = 0
    while at < end:
        start: i64 = value_start(buf, at, end)
        stop: i64 = value_stop(buf, start, end)
        if start == at + EXT_FIXED_SIZE + 1 and stop > start:
            letter: i64 = buf[at + EXT_NAME_POS]
            if not _set_binary(send, letter, buf, start, stop):
                return None
            if _FIRST <= letter <= _LAST:
                seen |= 1 << (letter - _FIRST)
        at = stop
    return send if seen & _NEEDED == _NEEDED else None


def _set_binary(send: SendFields, letter: i64, buf: bytes, start: i64, stop: i64) -> bool:
    """Set a field by its letter. Return False if its text is not of the field's type."""
    if letter == PROPERTIES:
        send.properties = buf[int(start) : int(stop)]
        return True
    if letter == PRODUCER_GROUP:
        send.producer_group = text_of(buf[int(start) : int(stop)])
        return True
    if letter == TOPIC:
        send.topic = text_of(buf[int(start) : int(stop)])
        return True
    if letter == DEFAULT_TOPIC:
        send.default_topic = text_of(buf[int(start) : int(stop)])
        return True
    if letter == BROKER_NAME:
        send.broker_name = text_of(buf[int(start) : int(stop)])
        return True
    if letter == UNIT_MODE:
        send.unit_mode = _is_true(buf, start, stop)
        return True
    if letter == BATCH:
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
    return _set_number(send, letter, -value if negative else value)


def _set_number(send: SendFields, letter: i64, value: i64) -> bool:
    """Set a number by its letter. Return False if the field cannot hold it."""
    if letter == BORN_TIMESTAMP:
        send.born_timestamp = int(value)
        return True
    if value < -(1 << 31) or value > (1 << 31) - 1:
        return False
    if letter == DEFAULT_TOPIC_QUEUE_NUMS:
        send.default_topic_queue_nums = int(value)
    elif letter == QUEUE_ID:
        send.queue_id = int(value)
    elif letter == SYS_FLAG:
        send.sys_flag = int(value)
    elif letter == FLAG:
        send.flag = int(value)
    elif letter == RECONSUME_TIMES:
        send.reconsume_times = int(value)
    elif letter == MAX_RECONSUME_TIMES:
        send.max_reconsume_times = int(value)
    return True


def _is_true(buf: bytes, start: i64, stop: i64) -> bool:
    return stop - start == 4 and buf[int(start) : int(stop)].lower() == b"true"


def scan_send_properties(properties: bytes) -> tuple[int, bytes, bytes, bytes]:
    """Return the kind of a send, its tags, its keys and its unique key.

    The kind is PLAIN, NO_WAIT (the property WAIT is false) or SLOW. A send is SLOW if the broker must act on one of its
    properties, such as a delay or a transaction. Tags and keys are then not read.
    """
    kind = PLAIN
    tags = b""
    keys = b""
    unique = b""
    firsts: i64 = _SLOW_FIRSTS
    pos: i64 = 0
    size: i64 = len(properties)
    while pos < size:
        split: i64 = pos
        while split < size and properties[split] != 1:
            if properties[split] == 2:
                return SLOW, b"", b"", b""
            split += 1
        if split == size:
            return SLOW, b"", b"", b""
        start: i64 = split + 1
        end: i64 = start
        while end < size and properties[end] != 2:
            end += 1
        word: i64
        length: i64 = split - pos
        if length == 4:
            word = i64(read_i32_be(properties, pos))
            if word == _TAGS:
                if tags:
                    return SLOW, b"", b"", b""
                tags = properties[int(start) : int(end)]
            elif word == _KEYS:
                if keys:
                    return SLOW, b"", b"", b""
                keys = properties[int(start) : int(end)]
            elif word == _WAIT and not (end - start == 4 and read_i32_be(properties, start) == _TRUE):
                kind = NO_WAIT
        elif length == 8 and read_i32_be(properties, pos) == _UNIQ and read_i32_be(properties, pos + 4) == _KEY:
            if unique:
                return SLOW, b"", b"", b""
            unique = properties[int(start) : int(end)]
        elif length > 4:
            first: i64 = properties[pos]
            if (
                0x40 <= first < 0x60
                and (firsts >> (first - 0x40)) & 1
                and properties[int(pos) : int(split)] in SLOW_NAMES
            ):
                return SLOW, b"", b"", b""
        pos = end + 1
    return kind, tags, keys, unique


def _json_content(text: str) -> bytes:
    """Return what `json_text` writes between the quotes."""
    if text.isalnum():
        data = text.encode()
        if len(data) == len(text):
            return data
    return json_text(text)[1:-1].encode()


class SendAnswerForm:
    """The answer to a stored send. The parts that are the same in all answers of a broker are prepared once."""

    def __init__(
        self, store_host: bytes, region: str, trace_on: bool, language: int, language_name: str, version: int
    ) -> None:
        self.store_host = store_host
        self.trace_on = trace_on
        trace = "true" if trace_on else "false"
        # The fields have the order of Apache's HashMap(256).
        self._start: bytes = b'{"code":0,"extFields":{"queueId":"'
        self._middle: bytes = f'","TRACE_ON":"{trace}","MSG_REGION":{json_text(region)},"queueOffset":"'.encode()
        self._flag: bytes = f'"}},"flag":1,"language":"{language_name}","opaque":'.encode()
        self._end: bytes = f',"serializeTypeCurrentRPC":"JSON","version":{version}}}'.encode()
        parts = (self._start, _JSON_MSG_ID, self._middle, self._flag, self._end)
        self._fixed: i64 = sum([len(part) for part in parts]) + _LOW_DIGITS
        self._binary_start: bytes = b"\x00\x00" + bytes((language,)) + version.to_bytes(2, "big")
        fields = BytesWriter()
        write_field(fields, b"TRACE_ON", trace.encode())
        write_field(fields, b"MSG_REGION", region.encode("utf-8", "replace"))
        self._binary_end: bytes = fields.getvalue()
        self._binary_fixed: i64 = (
            len(_MSG_ID) + len(_QUEUE_ID) + len(_QUEUE_OFFSET) + 3 * _VALUE_LENGTH + len(self._binary_end)
        )
        self._high: i64 = -1
        self._id: bytes = b""
        self._opaque = Digits()
        self._offset = Digits()

    def write(
        self,
        out: BytesWriter,
        codec: int,
        opaque: int,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        transaction_id: str,
    ) -> None:
        """Write one whole frame. It has no transaction id if `transaction_id` is ''."""
        high: i64 = physical_offset >> 16
        if high != self._high:
            self._high = high
            self._id = self.store_host.hex().upper().encode() + b"%012X" % (physical_offset >> 16)
        queue = small_number(queue_id)
        low: i64 = physical_offset & _LOW
        if codec == CODEC_BINARY:
            self._write_binary(out, opaque, queue, queue_offset, low, transaction_id)
        else:
            self._write_json(out, opaque, queue, queue_offset, low, transaction_id)

    def _write_json(
        self, out: BytesWriter, opaque: int, queue: bytes, queue_offset: int, low: i64, transaction_id: str
    ) -> None:
        size: i64 = self._fixed + len(queue) + len(self._id)
        size += self._offset.use(queue_offset) + self._opaque.use(opaque)
        transaction = b""
        if transaction_id:
            transaction = _json_content(transaction_id)
            size += len(transaction) + len(_JSON_TRANSACTION)
        write_i32_be(out, i32(size + LENGTH_SIZE))
        write_i32_be(out, i32(size))
        out.write(self._start)
        out.write(queue)
        if transaction_id:
            out.write(_JSON_TRANSACTION)
            out.write(transaction)
        out.write(_JSON_MSG_ID)
        out.write(self._id)
        out.write(_HEX[low >> 8])
        out.write(_HEX[low & 0xFF])
        out.write(self._middle)
        out.write(self._offset.head)
        out.write(self._offset.rest)
        out.write(self._flag)
        out.write(self._opaque.head)
        out.write(self._opaque.rest)
        out.write(self._end)

    def _write_binary(
        self, out: BytesWriter, opaque: int, queue: bytes, queue_offset: int, low: i64, transaction_id: str
    ) -> None:
        id_size: i64 = len(self._id) + _LOW_DIGITS
        offset_size: i64 = self._offset.use(queue_offset)
        fields: i64 = self._binary_fixed + id_size + len(queue) + offset_size
        transaction = b""
        if transaction_id:
            transaction = transaction_id.encode("utf-8", "replace")
            fields += len(_TRANSACTION) + _VALUE_LENGTH + len(transaction)
        write_i32_be(out, i32(fields + BINARY_EXT_POS + LENGTH_SIZE))
        write_i32_be(out, i32((CODEC_BINARY << 24) | (fields + BINARY_EXT_POS)))
        out.write(self._binary_start)
        write_i32_be(out, i32(opaque))
        write_i64_be(out, 1 << 32)  # the flag says that this is an answer, the remark is empty
        write_i32_be(out, i32(fields))
        out.write(_MSG_ID)
        write_i32_be(out, i32(id_size))
        out.write(self._id)
        out.write(_HEX[low >> 8])
        out.write(_HEX[low & 0xFF])
        out.write(_QUEUE_ID)
        write_i32_be(out, i32(len(queue)))
        out.write(queue)
        out.write(_QUEUE_OFFSET)
        write_i32_be(out, i32(offset_size))
        out.write(self._offset.head)
        out.write(self._offset.rest)
        if transaction_id:
            out.write(_TRANSACTION)
            write_i32_be(out, i32(len(transaction)))
            out.write(transaction)
        out.write(self._binary_end)
