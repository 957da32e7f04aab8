from hypothesis import given
from hypothesis import strategies as st

from aerobee.config.properties import decode_text, parse_properties, render_properties


def test_what_real_files_hold() -> None:
    text = (
        "\ufeff# a comment = no\r\n"
        "! another\r\n"
        "\r\n"
        "brokerName=broker-a\r\n"
        "  deleteWhen = 04\n"
        "namesrvAddr:a:9876;b:9876\n"
        "fileReservedTime 48\n"
        "long=one,\\\n"
        "     two\n"
        "path=C:\\\\store\n"
        "text=\\u4e2d\\tx\n"
        "empty=\n"
        "bare\n"
        "brokerName=broker-b\n"
        "trailing=x  \n"
        "key\\ with\\=signs=1"
    )
    assert parse_properties(decode_text(text.encode())) == {
        "brokerName": "broker-b",
        "deleteWhen": "04",
        "namesrvAddr": "a:9876;b:9876",
        "fileReservedTime": "48",
        "long": "one,two",
        "path": "C:\\store",
        "text": "中\tx",
        "empty": "",
        "bare": "",
        "trailing": "x  ",
        "key with=signs": "1",
    }


def test_latin_1_where_it_is_not_utf_8() -> None:
    assert parse_properties(decode_text(b"a=\xe9")) == {"a": "é"}


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(_TEXT.filter(bool), _TEXT))
def test_written_and_read_back(values: dict[str, str]) -> None:
    assert parse_properties(render_properties(values)) == values


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    assert isinstance(parse_properties(text), dict)
