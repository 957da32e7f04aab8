import pytest

from aerobee.hot.log.javahash import extend_hash, extend_hash_utf8, java_hash, java_hash_utf8, tags_code

# From Java's String.hashCode.
JAVA = {
    "": 0,
    "TagA": 2598919,
    "PAID": 2448076,
    "\u4f60\u597d": 652829,
    "x\U0001f680y": 58538878,
    "polygenelubricants": -2147483648,
}


@pytest.mark.parametrize("text", JAVA)
def test_as_java_hashes(text: str) -> None:
    data = b"<" + text.encode() + b">"
    assert java_hash(text) == JAVA[text]
    assert java_hash_utf8(data, 1, len(data) - 1) == JAVA[text]
    assert tags_code(text) == JAVA[text]
    assert extend_hash_utf8(java_hash("ab"), data, 1, len(data) - 1) == java_hash("ab" + text) & 0xFFFFFFFF


def test_bytes_that_are_no_utf8_hash_as_their_replacement() -> None:
    assert java_hash_utf8(b"a\xff", 0, 2) == java_hash("a\ufffd")
    assert extend_hash_utf8(7, b"a\xff", 0, 2) == extend_hash(7, "a\ufffd")
