"""Texts remembered: the same bytes give the same object, other bytes never its text."""

from hypothesis import given
from hypothesis import strategies as st

from aerobee.hot.wire.jsonheader import LastText

_TEXTS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=40)


@given(st.lists(_TEXTS, min_size=1, max_size=8), st.integers(0, 9))
def test_a_text_is_that_of_its_bytes_whatever_came_before(texts: list[str], before: int) -> None:
    last = LastText()
    # Each also after its own beginnings: those differ from it only at their end.
    for whole in texts:
        for text in (whole[:-1], whole, whole[:-1] + "~"):
            buf = b"#" * before + text.encode() + b'"' * 8
            assert last.take(buf, before, before + len(text)) == text


def test_the_same_text_is_the_same_object_also_after_another() -> None:
    last, other = LastText(), LastText()
    orders, users = b"orders" + bytes(8), b"users" + bytes(8)
    first = last.take(orders, 0, 6)
    assert last.take(users, 0, 5) == "users"
    assert last.take(orders, 0, 6) is first
    assert other.take(orders, 0, 6) is first


def test_a_text_longer_than_any_name_is_not_kept() -> None:
    long = b"x" * 256 + bytes(8)
    assert LastText().take(long, 0, 256) is not LastText().take(long, 0, 256)
    assert LastText().take(long, 0, 255) is LastText().take(long, 0, 255)
