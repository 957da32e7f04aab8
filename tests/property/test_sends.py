"""A send is read the same in place and by the general decode."""

import re
import struct
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.errors import ProtocolError, RemoteProtocolError
from aerobee.hot.wire.frame import Frame, opaque_and_flag, scan
from aerobee.hot.wire.send import (
    NO_WAIT,
    PLAIN,
    SLOW,
    SLOW_NAMES,
    SendFields,
    scan_binary_send,
    scan_json_send,
    scan_send_properties,
)
from aerobee.protocol.command import decode_command
from aerobee.protocol.sending import decode_json_send, decode_send, send_fields

# -- properties

SEEN = (b"TAGS", b"KEYS", b"UNIQ_KEY")
names = st.one_of(
    st.sampled_from([*SEEN, b"WAIT", *sorted(SLOW_NAMES)]),
    st.sampled_from([b"", b"TAG", b"TAGSX", b"UNIQ_KEX", b"DELAYS", b"K", b"\x00AGS", b"CITY", b"zip"]),
    st.binary(max_size=9),
)
values = st.one_of(
    st.sampled_from([b"", b"true", b"false", b"a\x01b", b"\x00"]),
    st.binary(max_size=12),
    st.text("\x00\x01\x02\x03\x7f\x80\x82\xff", max_size=20).map(lambda text: text.encode("latin-1")),
    st.text("0123456789ABCDEF", min_size=14, max_size=33).map(str.encode),
)
pairs = st.tuples(names, st.sampled_from([b"\x01"] * 12 + [b"", b"\x02"]), values).map(b"".join)
blocks = st.tuples(st.lists(pairs, max_size=7).map(b"\x02".join), st.sampled_from([b"", b"\x02"])).map(b"".join)


def reference(block: bytes) -> tuple[int, bytes, bytes, bytes]:
    slow = (SLOW, b"", b"", b"")
    found = [pair.split(b"\x01", 1) for pair in block.removesuffix(b"\x02").split(b"\x02")] if block else []
    if any(len(pair) != 2 or pair[0] in SLOW_NAMES for pair in found):
        return slow
    # A name that stands twice with something to say is for the slow path, whatever its last value is.
    given_twice: Counter[bytes] = Counter()
    last = dict.fromkeys(SEEN, b"")
    for name, value in found:
        if name in SEEN:
            given_twice[name] += last[name] != b""
            last[name] = value
    if any(given_twice.values()):
        return slow
    waits = all(value == b"true" for name, value in found if name == b"WAIT")
    return PLAIN if waits else NO_WAIT, last[b"TAGS"], last[b"KEYS"], last[b"UNIQ_KEY"]


@settings(max_examples=500)
@given(st.one_of(blocks, st.binary(max_size=40), st.text("\x00\x01\x02TAGSKEY_", max_size=30).map(str.encode)))
def test_properties_are_scanned_as_the_reference_does(block: bytes) -> None:
    assert scan_send_properties(block) == reference(block)


# -- JSON headers

plain_texts = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E, exclude_characters='"\\'), max_size=20)
odd_texts = st.sampled_from(
    ["é", "\\\\", '\\"', "\\n", "\\u0041", "\\u0001", "\\u0003", "\\ud800", "\x7f", "\x01", "\\/"]
)
numbers = st.one_of(
    st.integers(-(2**31), 2**31 - 1).map(str),
    st.sampled_from(["0", "-0", "007", "+1", "", "-", "2147483648", "1.0", "9" * 18, "9" * 19, "1e3"]),
)
SEPARATORS = ["\\u0001", "\\u0002", '\\"', "\\\\", "\\/"]


def quoted(text: str) -> str:
    return f'"{text}"'


def good(letter: str) -> st.SearchStrategy[str]:
    """A value as known writers make it."""
    if letter == "i":
        return st.lists(st.one_of(plain_texts, st.sampled_from(SEPARATORS)), max_size=8).map("".join).map(quoted)
    if letter in "km":
        return st.sampled_from(['"true"', '"false"'])
    if letter == "g":
        return st.integers(-(10**17), 10**17).map(str).map(quoted)
    return (st.integers(-(2**31), 2**31 - 1).map(str) if letter in "defhjl" else plain_texts).map(quoted)


def odd(letter: str) -> st.SearchStrategy[str]:
    """A value as few would write it, or none would."""
    if letter == "i":
        return st.lists(st.one_of(plain_texts, odd_texts), max_size=4).map("".join).map(quoted)
    if letter in "km":
        return st.sampled_from(['"TRUE"', '"yes"', '"1"', "true", '"tru"', '"falsE"'])
    if letter in "defghjl":
        return st.one_of(numbers.map(quoted), numbers)
    return odd_texts.map(quoted)


LETTERS = "abcdefghijklmn"
sound = st.fixed_dictionaries(
    {c: good(c) for c in "abefgh"}, optional={c: good(c) for c in LETTERS if c not in "abefgh"}
)
fields = st.sampled_from(LETTERS).flatmap(lambda c: st.tuples(st.just(c), st.one_of(good(c), odd(c))))
others = st.tuples(st.sampled_from(["z", "ab", "nsd", "", "a\\u0062"]), st.sampled_from(['"x"', "4", "null", '"a\\n"']))
TOP = {"flag": "0", "language": '"JAVA"', "opaque": "7", "serializeTypeCurrentRPC": '"JSON"', "version": "513"}


def written(members: list[tuple[str, str]]) -> str:
    return "{" + ",".join(f'"{name}":{value}' for name, value in members) + "}"


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    """Sends of which half are as known writers make them, the others odd in one way or two."""
    ext = list(draw(sound).items())
    top = list(TOP.items())
    more: list[tuple[str, str]] = []
    oddity = draw(st.integers(0, 9))
    if oddity == 0:
        ext = list((dict(ext) | dict(draw(st.lists(fields, min_size=1, max_size=2)))).items())
    elif oddity == 1:
        ext.insert(draw(st.integers(0, len(ext))), draw(st.one_of(fields, others)))
    elif oddity == 2:
        top.append(draw(others))
    elif oddity == 3:
        more.append(
            (draw(st.sampled_from(["code", "flag", "opaque", "extFields"])), draw(st.one_of(numbers, st.just("{}"))))
        )
    elif oddity == 4:
        top[draw(st.sampled_from([0, 2]))] = (draw(st.sampled_from(["flag", "opaque"])), draw(numbers))
    top.append(("extFields", written(ext)))
    return written([("code", "310"), *draw(st.permutations(top)), *more]).encode("utf-8", "surrogatepass")


def framed(header: bytes, body: bytes) -> Frame | None:
    frames = scan(struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body, 0)[0]
    return frames[0] if frames else None


def read(frame: Frame, send: SendFields) -> tuple[object, ...]:
    return (
        frame.opaque, frame.flag, send.producer_group, send.topic, send.default_topic, send.default_topic_queue_nums,
        send.queue_id, send.sys_flag, send.born_timestamp, send.flag, send.properties, send.reconsume_times,
        send.unit_mode, send.max_reconsume_times, send.batch, send.broker_name,
    )  # fmt: skip


# Close to the end of the buffer the general decode takes over.
bodies = st.one_of(st.binary(max_size=20), st.just(bytes(20)), st.just(b"}" * 20))
damage = st.one_of(st.binary(max_size=2), st.text('"\\,:{}-09auaA ', max_size=2).map(str.encode))


def agree(header: bytes, body: bytes) -> None:
    frame = framed(header, body)
    if frame is None:
        return
    fast = scan_json_send(frame)
    if fast is not None:
        again = framed(header, body)
        assert again is not None
        assert read(frame, fast) == read(again, decode_json_send(again))


@settings(max_examples=500)
@given(headers(), bodies)
def test_a_header_read_in_place_equals_the_general_decode(header: bytes, body: bytes) -> None:
    agree(header, body)


@settings(max_examples=500)
@given(headers(), st.integers(0, 10_000), st.integers(0, 3), damage, bodies)
def test_a_damaged_header_read_in_place_equals_the_general_decode(
    header: bytes, at: int, removed: int, put: bytes, body: bytes
) -> None:
    at %= len(header)
    agree(header[:at] + put + header[at + removed :], body)


@given(headers(), bodies)
def test_whoever_reads_a_header_the_outcome_is_the_same(header: bytes, body: bytes) -> None:
    outcomes: list[tuple[object, ...] | None] = []
    for decode in (decode_send, decode_json_send):
        frame = framed(header, body)
        assert frame is not None or b'"opaque":' in header
        if frame is None:
            return
        try:
            outcomes.append(read(frame, decode(frame)))
        except ProtocolError as error:
            outcomes.append((type(error), str(error)))
    assert outcomes[0] == outcomes[1]


# -- binary headers

GOOD = dict(
    zip("abcdefghijklmn", b"g t TBW102 4 1 0 1763200000000 0 K\x01V 0 false 16 TRUE n".split(b" "), strict=True)
)
SHORT = st.sampled_from([b"", b"7", b"-7", b"-", b"+1", b"007", b"2147483648", b"-2147483648", b"9" * 18, b"9" * 19])
letters = st.sampled_from([c.encode() for c in "abcdefghijklmnoz"])
ext_pairs = st.tuples(st.one_of(letters, st.binary(max_size=3)), st.one_of(SHORT, st.binary(max_size=6)))


def ext_field(pair: tuple[bytes, bytes]) -> bytes:
    return struct.pack(">H", len(pair[0])) + pair[0] + struct.pack(">I", len(pair[1])) + pair[1]


@settings(max_examples=500)
@given(st.lists(ext_pairs, max_size=3), st.integers(0, 14), st.booleans(), st.integers(0, 300), st.binary(max_size=2))
def test_a_binary_send_read_in_place_is_what_the_general_decode_gives(
    odd_pairs: list[tuple[bytes, bytes]], where: int, damaged: bool, at: int, put: bytes
) -> None:
    sent = [(name.encode(), value) for name, value in GOOD.items()]
    ext = b"".join(map(ext_field, sent[:where] + odd_pairs + sent[where:]))
    if damaged:
        at %= len(ext)
        ext = ext[:at] + put + ext[at + len(put) :]
    header = struct.pack(">hBhiiII", 310, 0, 513, 7, 0, 0, len(ext)) + ext
    frame = scan(struct.pack(">II", 4 + len(header), 1 << 24 | len(header)) + header, 0)[0][0]
    try:
        send = scan_binary_send(frame)
    except RemoteProtocolError as error:
        with pytest.raises(RemoteProtocolError, match=re.escape(str(error))):
            decode_command(frame)
        return
    if send is None:
        return
    command = decode_command(frame)
    # Only the general decode asks for c and d, and only it takes "1" for true.
    command.ext = {"c": "", "d": "0"} | command.ext
    command.ext |= {name: str(command.ext.get(name, "").lower() == "true").lower() for name in "km"}
    # Only a send read in place keeps properties that are no UTF-8.
    send.properties = send.properties.decode("utf-8", "replace").encode()
    assert read(frame, send) == read(frame, send_fields(command))


pieces = st.sampled_from(
    [
        b'"opaque":',
        b'"flag":',
        b'\\"opaque":',
        b'x"flag":',
        b'"flag"',
        b":",
        b'"',
        b"\\",
        b"7,",
        b"-5}",
        b"99999999999,",
    ]
)


def last_number(text: bytes, name: bytes) -> int | None:
    """The last number of a name that is not escaped."""
    found = [
        int(m[2]) for m in re.finditer(rb"(?=(.)" + name + rb"(-?[0-9]{1,10})[,}])", text, re.DOTALL) if m[1] != b"\\"
    ]
    return next((number for number in reversed(found) if -(2**31) <= number < 2**31), None)


@settings(max_examples=300)
@given(st.lists(st.one_of(pieces, st.binary(max_size=3)), max_size=14).map(b"".join))
def test_opaque_and_flag_are_the_last_of_their_names(text: bytes) -> None:
    buf = bytes(8) + b'{"code":1,' + text
    expected = last_number(buf[8:], b'"opaque":'), last_number(buf[8:], b'"flag":')
    found = opaque_and_flag(buf, 8, len(buf))
    assert tuple(None if number == 1 << 40 else number for number in found) == expected
