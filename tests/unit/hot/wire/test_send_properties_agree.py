"""What the scan of a send finds is what the log and the index would find by looking again: they do not."""

from hypothesis import example, given
from hypothesis import strategies as st

from aerobee.hot.log.layout import SEAL_NAME
from aerobee.hot.log.properties import find_property, remove_property
from aerobee.hot.wire.send import SLOW, scan_send_properties

WORDS = st.sampled_from(
    [b"TAGS", b"KEYS", b"UNIQ_KEY", b"__CRC32#", b"X__CRC32#", b"XTAGS", b"a", b"", b"\x01", b"\x02", "ü".encode()]
)


@given(st.lists(WORDS, max_size=24).map(b"".join))
@example(b"TAGS\x01\x02UNIQ_KEY\x01u\x02TAGS\x01x\x02")
@example(b"UNIQ_KEY\x01u\x02X__CRC32#\x01TAGS\x02TAGS\x01x")
@example(b"UNIQ_KEY\x01TAGS\x01x\x02a\x01__CRC32#\x02")
def test_an_ordinary_send_has_the_tags_found_and_no_checksum(block: bytes) -> None:
    kind, tags, _, _ = scan_send_properties(block)
    if kind != SLOW:
        assert tags == (find_property(block, b"TAGS") or b"")
        assert remove_property(block, SEAL_NAME) == block
