"""What an ordinary send carries, and what makes it one for the slow path."""

import pytest

from aerobee.hot.wire.send import NO_WAIT, PLAIN, SLOW, SLOW_NAMES
from aerobee.hot.wire.send import scan_send_properties as scan

ORDINARY = b"KEYS\x01k 1\x02UNIQ_KEY\x01U1\x02WAIT\x01true\x02city\x01Bern\x01CH\x02TAGS\x01TagA\x02"


def test_tags_keys_and_unique_key_are_found() -> None:
    assert scan(ORDINARY) == scan(ORDINARY[:-1]) == (PLAIN, b"TagA", b"k 1", b"U1")
    assert scan(b"") == (PLAIN, b"", b"", b"")
    assert scan(ORDINARY.replace(b"true", b"false")) == (NO_WAIT, b"TagA", b"k 1", b"U1")


@pytest.mark.parametrize("name", sorted(SLOW_NAMES))
def test_what_the_broker_acts_upon_is_for_the_slow_path(name: bytes) -> None:
    assert scan(ORDINARY + name + b"\x011\x02")[0] == SLOW
    assert scan(ORDINARY + name + b"x\x011\x02")[0] == scan(ORDINARY + b"x" + name + b"\x011\x02")[0] == PLAIN


@pytest.mark.parametrize("block", [b"TAGS", b"\x02", b"TAGS\x02a\x01b", b"a\x01b\x02\x02", ORDINARY + b"TAGS\x01b"])
def test_what_is_not_sound_is_for_the_slow_path(block: bytes) -> None:
    assert scan(block) == (SLOW, b"", b"", b"")
