import math
from decimal import Decimal

import pytest

from aerobee.model.dialect import DialectError, loads
from aerobee.model.fields import float_of, int_key, int_of, whole_of
from aerobee.model.numbers import (
    INT64_MAX,
    INT64_MIN,
    NumberError,
    float_or,
    int_or,
    parse_float,
    parse_hex,
    parse_int,
    plain_float,
    plain_int,
)


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("-1", -1), ("+7", 7), ("007", 7), (str(INT64_MAX), INT64_MAX), (b"12", 12)]
)
def test_whole_numbers(text: str | bytes, value: int) -> None:
    assert parse_int(text) == int_or(text, None) == value


BAD = [
    "",
    "-",
    "+",
    "1_000",
    " 1",
    "1 ",
    "1\n",
    "0x1",
    "1.0",
    "\u0661",
    "\u00b2",
    "7" * 5000,
    "0" * 5000,
    "--1",
    "1e3",
    "\ud800",
]


@pytest.mark.parametrize("text", [*BAD, str(INT64_MAX + 1), str(INT64_MIN - 1), b"\xff"])
def test_what_is_no_whole_number(text: str | bytes) -> None:
    with pytest.raises(NumberError) as error:
        parse_int(text)
    assert len(str(error.value)) < 200
    assert int_or(text, -5) == -5


def test_bounds() -> None:
    assert parse_int("7", 0, 7) == 7
    with pytest.raises(NumberError, match="'8' is not a whole number from 0 to 7"):
        parse_int("8", 0, 7)
    assert int_or(None, 3) == 3


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "-1e999", "1" * 5000, "1_0.0", "", ".", "0x1p3", "1e"])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(NumberError):
        parse_float(text)
    assert float_or(text, None) is None


def test_numbers_with_a_point() -> None:
    assert [parse_float(text) for text in ("1.5", "-2", ".5", "1e3", "1.")] == [1.5, -2.0, 0.5, 1000.0, 1.0]
    with pytest.raises(NumberError, match="from 0 to 1"):
        parse_float("2", 0, 1)


def test_hexadecimal() -> None:
    assert parse_hex("fF", 2) == 255
    for text in ("", "fff", "+f", "g", "_f"):
        with pytest.raises(NumberError):
            parse_hex(text, 2)


def test_what_is_a_number_already_is_not_read_from_text() -> None:
    assert plain_int(True) == 1
    assert plain_float(Decimal("1.5")) == 1.5
    with pytest.raises(TypeError):
        plain_int("1")  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        plain_float("1")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [2**63, "9" * 5000, 1.5, [], {}, None, "x"])
def test_json_values_that_are_no_integer_of_64_bits(value: object) -> None:
    with pytest.raises(DialectError):
        whole_of(value)
    with pytest.raises(DialectError) as error:
        int_key(value)
    assert len(str(error.value)) < 200
    if value is not None:
        with pytest.raises(DialectError, match="<n>"):
            int_of({"n": value}, "n")


def test_json_numbers_without_end() -> None:
    for text in ("7" * 5000, "1e999", "-1e999", "{1:1e999}", "{1:" + "7" * 5000 + "}", "{" + "7" * 5000 + ":1}"):
        with pytest.raises(DialectError):
            loads(text.encode())
    assert loads(b"{1:1e308}") == {1: 1e308}
    with pytest.raises(DialectError):
        float_of({"n": 10**400}, "n")
    assert math.isfinite(float_of({"n": 10**300}, "n"))


def test_half_a_pair_of_escapes_is_no_text() -> None:
    for text in (r'"\ud800"', r'{1:"\udc00x"}', r'{"\ud800":{1:2}}'):
        with pytest.raises(DialectError):
            loads(text.encode())
    assert loads(rb'{1:"\ud83d\udc1d"}') == {1: "\U0001f41d"}
