"""Text becomes a number in `model/numbers.py`, bounded, and nowhere else.

`int(text)` takes any length of digits (and raises at 4,301 of them), blanks, underscores and digits of every script;
`float(text)` takes `nan` and `inf`. So a call of `int` or `float` in src/ is one of these, or this test names it:

- of a literal, or of arithmetic: `int(seconds * 1000)` cannot have text in it;
- in compiled code, of a variable or function declared `i64`: that is how mypyc makes a plain int;
- in a file of READERS, which reads digits itself, at the places named there.

For everything else: `parse_int`, `int_or`, `parse_float`, `float_or` for text, `fields.int_of` and `whole_of` for a
value of JSON, `plain_int` and `plain_float` for what is a number already (numpy's, a decimal). They refuse text.
"""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"

# File -> what `int` or `float` is called with there. Each place bounds the digits before the call.
READERS = {
    "aerobee/model/numbers.py": {"text", "digits", "text, 16"},
    # Patterns of at most 31 digits, and the exponent of repr(float).
    "aerobee/model/dialect.py": {"number[1]", "number[0]", "exponent"},
    # Java's own rules for SQL92 (digits of any script, hexadecimal): at most 19 digits, and one at a time.
    "aerobee/model/sql92/numbers.py": {"digits", "digits[at]", "cut.rstrip('fFdD')"},
    "aerobee/hot/log/host.py": {"port_text"},  # at most five
    "aerobee/hot/log/scan.py": {"digits"},  # at most nine
}
ARITHMETIC = (ast.Mult, ast.Div, ast.FloorDiv, ast.Sub, ast.Pow, ast.Add)
# Where the type itself is meant, or where a bad word becomes an error of the command line.
ASKS_FOR_TYPES = {"isinstance", "issubclass", "NewType", "cast", "TypeVar", "get", "option", "add_argument"}
SOURCES = sorted(SRC.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(SRC).as_posix()


def is_number(node: ast.expr, words: set[str]) -> bool:
    """Whether what is converted cannot be text."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.BinOp):
        # Text can be added to text and repeated, so one side must be known to be a number.
        sides = (node.left, node.right)
        if isinstance(node.op, ast.Add | ast.Mult):
            return any(is_known_number(side, words) for side in sides)
        return isinstance(node.op, ARITHMETIC)
    return is_known_number(node, words)


def is_known_number(node: ast.expr, words: set[str]) -> bool:
    match node:
        case ast.Constant(value=int() | float()):
            return True
        case ast.BinOp():
            return is_number(node, words)
        case ast.Call(func=ast.Name(id=name)):
            return name in words or name in {"len", "round", "sum"}
        case ast.Name(id=name) | ast.Attribute(attr=name):
            # A time says so by its name.
            return name in words or name.lower().endswith(("_ms", "_s"))
    return False


def i64_names(tree: ast.AST) -> set[str]:
    """Variables, parameters and functions that are declared `i64`."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="i64")):
                found.add(name)
            case ast.arg(arg=name, annotation=ast.Name(id="i64")):
                found.add(name)
            case ast.FunctionDef(name=name, returns=ast.Name(id="i64")):
                found.add(name)
    return found


def problems_in(text: str, readers: frozenset[str] | set[str] = frozenset()) -> list[str]:
    """Every place that may turn text into a number."""
    tree = ast.parse(text)
    words = i64_names(tree)
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        called = node.func.attr if isinstance(node.func, ast.Attribute) else called
        if isinstance(node.func, ast.Name) and called in ("int", "float") and node.args:
            written = ", ".join(ast.unparse(one) for one in node.args)
            if written not in readers and not (len(node.args) == 1 and is_number(node.args[0], words)):
                found.append(f"line {node.lineno}: {called}({written})")
        elif called not in ASKS_FOR_TYPES:
            given = [*node.args, *(word.value for word in node.keywords)]
            found += [
                f"line {node.lineno}: {one.id} handed to {called}"
                for one in given
                if isinstance(one, ast.Name) and one.id in ("int", "float")
            ]
    return found


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_text_becomes_a_number_in_one_place(path: Path) -> None:
    name = name_of(path)
    found = problems_in(path.read_text(), READERS.get(name, set()))
    assert not found, f"{name}: {found}: use aerobee.model.numbers or aerobee.model.fields (see the head of this test)"


def test_every_reader_is_there() -> None:
    for name, calls in READERS.items():
        text = (SRC / name).read_text()
        for call in calls:
            assert any(f"{kind}({call.replace(chr(39), chr(34))})" in text for kind in ("int", "float")), (name, call)


@pytest.mark.parametrize(
    "text",
    [
        "int(text)",
        "float(answer.ext['x'])",
        "int(text, 16)",
        "int(a + b)",
        "list(map(int, words))",
        "sorted(ids, key=int)",
        "state.load(int)",
        "int(body.decode())",
        "int(x or 0)",
    ],
)
def test_it_finds(text: str) -> None:
    assert problems_in(text)


@pytest.mark.parametrize(
    "text",
    [
        "int(elapsed_s * 1000)",
        "float('inf')",
        "int(len(ordered) * share)",
        "isinstance(x, int)",
        "parse_int(text)",
        "def f(at: i64) -> int:\n return int(at + 1)",
        "int(value / top + 0.5)",
    ],
)
def test_it_lets_pass(text: str) -> None:
    assert not problems_in(text)
