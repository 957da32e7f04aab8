import pytest

from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.properties import (
    add_property,
    decode_properties,
    encode_properties,
    find_property,
    remove_property,
    set_property,
)


def test_pairs_without_name_or_value_are_dropped_and_the_last_of_equal_names_counts() -> None:
    # As MessageDecoder.string2messageProperties of release 5.5.0 answered.
    block = b"a\x01b\x02\x01x\x02n\x01\x02c\x01d\x01e\x02a\x01z"
    assert decode_properties(block) == {"a": "z", "c": "d\x01e"}
    assert find_property(block, b"a") == b"z"
    assert find_property(block, b"c") == b"d\x01e"
    assert find_property(block, b"n") is None


def test_round_trip() -> None:
    pairs = {"KEYS": "k1 k2", "u": "\u4f60\U0001f680", "x": "a\x01b"}
    assert decode_properties(encode_properties(pairs)) == pairs
    assert encode_properties({}) == b""
    assert decode_properties(b"") == {}


def test_what_would_become_other_pairs_is_refused() -> None:
    for pairs in ({"a\x01": "b"}, {"a\x02": "b"}, {"a": "b\x02c"}):
        with pytest.raises(InvalidArgumentError):
            encode_properties(pairs)
        with pytest.raises(InvalidArgumentError):
            [add_property(b"", name.encode(), value.encode()) for name, value in pairs.items()]


def test_bytes_that_are_no_utf8_and_lone_surrogates_become_what_java_makes_of_them() -> None:
    assert decode_properties(b"a\x01\xff\x02") == {"a": "\ufffd"}
    assert encode_properties({"a": "\ud800"}) == b"a\x01?\x02"


def test_a_name_is_found_only_as_a_whole_name() -> None:
    block = b"XKEYS\x01no\x02KEYS\x01yes\x02KEYSX\x01no\x02v\x01KEYS\x01no\x02"
    assert find_property(block, b"KEYS") == b"yes"
    assert find_property(b"KEYS\x01\x02", b"KEYS") is None
    assert find_property(b"KEYS\x01a\x02KEYS\x01\x02", b"KEYS") == b"a"
    assert find_property(b"a\x01unended", b"a") == b"unended"


def test_add_remove_set() -> None:
    assert add_property(b"a\x01b", b"c", b"d") == b"a\x01b\x02c\x01d\x02"
    assert add_property(b"", b"c", b"d") == b"c\x01d\x02"
    assert remove_property(b"a\x01b\x02c\x01d\x02a\x01e\x02", b"a") == b"c\x01d\x02"
    assert remove_property(b"xa\x01b\x02", b"a") == b"xa\x01b\x02"
    assert remove_property(b"a\x01b", b"a") == b""
    assert set_property(b"a\x01b\x02c\x01d\x02", b"a", b"z") == b"c\x01d\x02a\x01z\x02"
