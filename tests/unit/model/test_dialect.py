"""Apache's JSON dialect: what fastjson2 writes is read, and written back the same."""

import json
import math

import pytest

from aerobee.errors import LocalProtocolError, RemoteProtocolError
from aerobee.model.dialect import (
    DEPTH_MAX,
    DialectError,
    ObjectKey,
    dumps,
    dumps_plain,
    java_double,
    loads,
    loads_object,
)

# Each recorded from RemotingSerializable.encode.
WRITTEN = [
    b'{"brokerDatas":[{"brokerAddrs":{0:"1.1.1.1:1",2:"1.1.1.1:3"},"brokerName":"b"}],"queueDatas":[]}',
    b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"b","queueId":3,"topic":"t"}:{"brokerOffset":5}}}',
    b'{"offsetTable":{"t@g":{0:10,3:2}}}',
    b'{"statsMinute":{"avgpt":1.0E-5,"sum":1,"tps":1.5E10}}',
    b'{"a":[],"b":{},"c":"\\u0001\\"\\\\/","d":true,"e":[1,null,-2]}',
    '{"a":"é中😀\u2028\x7f"}'.encode(),
    b"{5000000000:1,-3:1}",
]


@pytest.mark.parametrize("text", WRITTEN)
def test_what_apache_writes_is_written_back(text: bytes) -> None:
    assert dumps(loads(text)) == text


def test_the_kinds_of_key() -> None:
    value = loads(b'{0:1, "0":2 , {"q":1,"t":"x"}:3}')
    assert value == {0: 1, "0": 2, ObjectKey.of({"q": 1, "t": "x"}): 3}
    assert next(k for k in value if isinstance(k, ObjectKey)).fields() == {"q": 1, "t": "x"}


def test_white_space_and_config_files_with_tabs() -> None:
    assert loads(b' {\n\t"offsetTable":{\n\t\t"t@g":{\n\t\t\t0:10,\n\t\t\t3:2\n\t\t}\n\t}\n} ') == {
        "offsetTable": {"t@g": {0: 10, 3: 2}}
    }


def test_pretty_as_apaches_config_files() -> None:
    # Recorded from RemotingSerializable.toJson(true).
    value = {
        "a": {"x": 1, "y": {}},
        "k": {0: 10, 3: 2},
        "l": [],
        "m": ["a", "b"],
        "o": {ObjectKey.of({"q": 1}): {"b": 5}},
    }
    assert dumps(value, pretty=True).decode() == (
        '{\n\t"a":{\n\t\t"x":1,\n\t\t"y":{}\n\t},\n\t"k":{\n\t\t0:10,\n\t\t3:2\n\t},\n\t"l":[\n\t\t\n\t],\n'
        '\t"m":[\n\t\t"a",\n\t\t"b"\n\t],\n\t"o":{\n\t\t{\n\t\t\t"q":1\n\t\t}:{\n\t\t\t"b":5\n\t\t}\n\t}\n}'
    )
    assert loads(dumps(value, pretty=True)) == value


def test_the_last_of_twin_keys_wins() -> None:
    assert loads(b'{"a":1,"a":2}') == {"a": 2}
    assert loads(b"{0:1,0:2}") == {0: 2}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"{1}",
        b"{1:}",
        b"{1:2",
        b"{1:2,}",
        b"{1:2]",
        b"{1:2} x",
        b"{1 2:3}",
        b"{a:1}",
        b"{'a':1}",
        b"{1.5:1}",
        b"{true:1}",
        b"{null:1}",
        b"{[1]:1}",
        b'{{"a":[1]}:1}',
        b'{{"a":{}}:1}',
        b'{{"a":1}1}',
        b"{1:NaN}",
        b"{1:Infinity}",
        b"{1:01}",
        b"{1:+1}",
        b"{1:tru}",
        b'{1:"\x01"}',
        b'{1:"\\x"}',
        b'{1:"',
        b"{1:\xff}",
        b'{1:"\xff"}',
        b"{99999999999999999999:1}",
        b"[1 2]",
        b"[1:2]",
        b"[{1:2}",
        b"NaN",
    ],
)
def test_what_is_not_the_dialect_is_refused(text: bytes) -> None:
    with pytest.raises(DialectError):
        loads(text)


@pytest.mark.parametrize("opening", [b'{"a":', b"[", b"{1:", b"{", b'{"a":{1:'])
@pytest.mark.parametrize("times", [DEPTH_MAX + 1, 1000, 300_000])
def test_depth_is_bounded_without_recursion(opening: bytes, times: int) -> None:
    with pytest.raises(DialectError):
        loads(opening * times)
    close = {b"[": b"]", b'{"a":': b"}", b"{1:": b"}"}.get(opening)
    if close:
        with pytest.raises(DialectError, match="deeper"):
            loads(opening * times + b"1" + close * times)


def test_depth_up_to_the_limit_is_fine() -> None:
    for opening, close in ((b"[", b"]"), (b'{"a":', b"}"), (b"{1:", b"}")):
        value = loads(opening * DEPTH_MAX + b"1" + close * DEPTH_MAX)
        assert dumps(value) == opening * DEPTH_MAX + b"1" + close * DEPTH_MAX
        with pytest.raises(LocalProtocolError):
            dumps([value])


def test_size_is_bounded() -> None:
    with pytest.raises(DialectError, match="exceed 10"):
        loads(b'"0123456789"', size_max=10)


def test_only_objects() -> None:
    assert loads_object(b"") == {}
    with pytest.raises(RemoteProtocolError, match="not a JSON object"):
        loads_object(b"[1]")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1e7, "1.0E7"),
        (9999999.5, "9999999.5"),
        (123456789.123, "1.23456789123E8"),
        (1 / 3, "0.3333333333333333"),
        (-1e22, "-1.0E22"),
        (1.25e-7, "1.25E-7"),
    ],
)
def test_doubles_as_java_prints_them(value: float, text: str) -> None:
    assert java_double(value) == text
    assert float(text) == value


def test_none_nan_and_what_has_no_form() -> None:
    assert dumps({"a": None, "b": math.nan, "c": [None, math.inf]}) == b'{"b":null,"c":[null,null]}'
    assert dumps({"x": "\ud800"}) == b'{"x":"?"}'
    assert dumps({"s": {1}, "t": (1, 2)}) == b'{"s":[1],"t":[1,2]}'
    for bad in ({"a": object()}, {1.5: 1}, b"bytes"):
        with pytest.raises(LocalProtocolError):
            dumps(bad)


def test_the_fast_writer_agrees() -> None:
    value = {"a": "é\n", "b": [1, True, {"c": "d"}], "e": {}}
    assert dumps_plain(value) == dumps(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
