"""The layouts of log files stand in `hot/log/layout.py`, the fields of a send in `hot/wire/send.py`, and nowhere else.

- A module that reads or writes log files names its offsets. In such a module no number from 4 up may be a position: an
  argument of `read_i32_be` and its like or of `unpack_from`, an index of a sum, or a bound of a slice.
- No module repeats a `struct` format of the layout.
- No class, dict or text lists the letters of SEND_MESSAGE_V2.
"""

import ast
import struct
from pathlib import Path

import pytest

from aerobee.hot.log import layout
from aerobee.hot.wire.send import SEND_V2_NAMES, SendFields

SRC = Path(__file__).parents[2] / "src"
LAYOUT = SRC / "aerobee/hot/log/layout.py"
TABLE = SRC / "aerobee/hot/wire/send.py"
SOURCES = sorted(path for path in SRC.rglob("*.py") if "testing" not in path.parts)
READS_LOGS = ("aerobee/store/", "aerobee/hot/log/", "pyspark_rocketmq/columns/", "pyspark_rocketmq_store/")
# These slice file names and tuples, not records.
NO_RECORDS = ("aerobee/store/offline/checkindex.py", "aerobee/store/readonly.py")
FORMATS = {value for name, value in vars(layout).items() if name.endswith("_FORMAT")}
NEEDED = {SEND_V2_NAMES[name] for name in ("producer_group", "topic", "queue_id", "sys_flag", "born_timestamp", "flag")}


def is_bare(node: ast.expr | None) -> bool:
    """Whether a position is a number from 4 up, or a sum with one."""
    match node:
        case ast.Constant(value=int(number)):
            return number >= 4
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return is_bare(left) or is_bare(right)
    return False


def bare_offsets(tree: ast.AST) -> list[str]:
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[_, *rest]) if (
                name.startswith("read_i") or name == "unpack_from"
            ):
                found += [arg for arg in rest if is_bare(arg)]
            case ast.Subscript(slice=ast.Slice(lower=lower, upper=upper)):
                found += [bound for bound in (lower, upper) if bound is not None and is_bare(bound)]
            case ast.Subscript(slice=ast.BinOp() as index) if is_bare(index):
                found.append(index)
    return [f"{node.lineno}: {ast.unparse(node)}" for node in found]


def formats(tree: ast.AST) -> list[str]:
    return [
        f"{node.lineno}: {node.value}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in FORMATS
    ]


def letters(tree: ast.AST) -> list[str]:
    """Where all letters that a send needs are listed."""
    found: list[str] = []
    for node in ast.walk(tree):
        names: set[object] = set()
        match node:
            case ast.Dict(keys=keys):
                names = {key.value for key in keys if isinstance(key, ast.Constant)}
            case ast.ClassDef(body=body):
                targets = [part.target for part in body if isinstance(part, ast.AnnAssign)]
                names = {target.id for target in targets if isinstance(target, ast.Name)}
                names |= {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
            case ast.JoinedStr():
                text = ast.unparse(node)
                names = {letter for letter in NEEDED if f'"{letter}":' in text}
        if names >= NEEDED:
            found.append(f"{node.lineno}")  # type: ignore[attr-defined]
    return found


def name_of(path: Path) -> str:
    return path.relative_to(SRC).as_posix()


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if name_of(p).startswith(READS_LOGS) and name_of(p) not in NO_RECORDS], ids=name_of
)
def test_offsets_have_names(path: Path) -> None:
    assert bare_offsets(ast.parse(path.read_text())) == []


def test_formats_and_letters_stand_once() -> None:
    repeated = {}
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        if path != LAYOUT and (found := formats(tree)):
            repeated[name_of(path)] = found
        if path != TABLE and (found := letters(tree)):
            repeated[name_of(path)] = found
    assert repeated == {}


def test_positions_agree_with_formats_and_sizes() -> None:
    """The positions of fields, which loops use, and the formats, which `struct` uses, are one layout."""

    def ends(form: str) -> list[int]:
        codes = form[1:].replace("4q2i", "qqqqii")
        return [struct.calcsize(">" + codes[:n]) for n in range(len(codes) + 1)]

    assert ends(layout.RECORD_HEAD_FORMAT) == [
        layout.RECORD_SIZE_POS,
        layout.RECORD_MAGIC_POS,
        layout.RECORD_BODY_CRC_POS,
        layout.RECORD_QUEUE_ID_POS,
        layout.RECORD_FLAG_POS,
        layout.RECORD_QUEUE_OFFSET_POS,
        layout.RECORD_PHYSICAL_OFFSET_POS,
        layout.RECORD_SYS_FLAG_POS,
        layout.RECORD_HEAD_SIZE,
    ]
    assert ends(layout.UNIT_FORMAT) == [
        layout.UNIT_PHYSICAL_OFFSET_POS,
        layout.UNIT_RECORD_SIZE_POS,
        layout.UNIT_TAGS_CODE_POS,
        layout.UNIT_SIZE,
    ]
    assert ends(layout.INDEX_ENTRY_FORMAT) == [
        layout.INDEX_ENTRY_HASH_POS,
        layout.INDEX_ENTRY_OFFSET_POS,
        layout.INDEX_ENTRY_SECONDS_POS,
        layout.INDEX_ENTRY_PREVIOUS_POS,
        layout.INDEX_ENTRY_SIZE,
    ]
    assert ends(layout.INDEX_HEADER_FORMAT)[-1] == layout.INDEX_HEADER_SIZE
    assert ends(layout.SIZE_AND_MAGIC_FORMAT)[-1] == layout.BLANK_SIZE_MIN
    assert ends(layout.PART_HEAD_FORMAT)[-3:] == [
        layout.PART_FLAG_POS,
        layout.PART_BODY_SIZE_POS,
        layout.PART_BODY_POS,
    ]
    assert layout.PART_FIXED_SIZE == layout.PART_BODY_POS + layout.PROPERTIES_LENGTH_SIZE
    assert layout.RECORD_BODY_POS == layout.RECORD_BODY_SIZE_POS + layout.BODY_LENGTH_SIZE
    assert layout.FIXED_SIZE == layout.RECORD_BODY_POS + 1 + layout.PROPERTIES_LENGTH_SIZE


def test_the_table_of_a_send_names_every_field() -> None:
    fields = SendFields("", "", "", 0, 0, 0, 0, 0, b"", 0, False, 0, False, "")
    assert all(hasattr(fields, name) for name in SEND_V2_NAMES)
    assert "".join(SEND_V2_NAMES.values()) == "abcdefghijklmn"


@pytest.mark.parametrize(
    "line",
    ["read_i32_be(buf, pos + 36)", "S.unpack_from(data, 28)", "data[36:40]", "data[at + 8 : end]", "buf[at + 7]"],
)
def test_a_bare_offset_is_found(line: str) -> None:
    assert len(bare_offsets(ast.parse(line))) >= 1


@pytest.mark.parametrize(
    "text",
    [
        """x = {"a": 1, "b": 2, "e": 3, "f": 4, "g": 5, "h": 6}""",
        "class X:\n    a: int\n    b: int\n    e: int\n    f: int\n    g: int\n    h: int",
        """x = f'"a":{a},"b":{b},"e":{e},"f":{f},"g":{g},"h":{h}'""",
    ],
)
def test_listed_letters_are_found(text: str) -> None:
    assert letters(ast.parse(text)) != []
