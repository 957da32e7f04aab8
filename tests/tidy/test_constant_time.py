"""Secrets and signatures are compared in constant time: nobody learns a digest from how long a refusal took."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
# Words in the names of what must be compared by hmac.compare_digest.
SECRET_WORDS = ("signature", "digest", "proof", "hmac", "secret_key", "mac_of")
PACKAGES = ("access", "admin", "app", "coordination", "dashboard", "net", "proxy", "replication")
PLACES = sorted(
    {SRC / "aerobee/hot/wire/signed.py", SRC / "aerobee/protocol/signing.py"}.union(
        *((SRC / "aerobee" / package).rglob("*.py") for package in PACKAGES)
    )
)


def _is_secret(node: ast.expr) -> bool:
    name = ""
    if isinstance(node, ast.Name):
        name = node.id
    elif isinstance(node, ast.Attribute):
        name = node.attr
    elif isinstance(node, ast.Call):
        return _is_secret(node.func)
    # Constants are names of fields.
    return not name.isupper() and any(word in name.lower() for word in SECRET_WORDS)


def comparisons(source: str) -> list[int]:
    """Return the lines where something that should be secret is compared by an operator."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and any(isinstance(one, ast.Eq | ast.NotEq) for one in node.ops):
            sides = [node.left, *node.comparators]
            if any(map(_is_secret, sides)) and not any(isinstance(one, ast.Constant) for one in sides):
                found.append(node.lineno)
    return found


@pytest.mark.parametrize("path", PLACES, ids=lambda path: str(path.relative_to(SRC)))
def test_secrets_are_compared_in_constant_time(path: Path) -> None:
    assert comparisons(path.read_text()) == [], "use hmac.compare_digest"


@pytest.mark.parametrize("line", ["a.signature == wanted", "if key.digest(b) != given: pass", "x = digest_of(a) == b"])
def test_a_plain_comparison_is_found(line: str) -> None:
    assert comparisons(line) == [1]


def test_the_checks_of_signatures_use_it() -> None:
    for name in (
        "access/door.py",
        "dashboard/security.py",
        "dashboard/usersfile.py",
        "hot/wire/signed.py",
        "replication/transfer.py",
    ):
        assert "hmac.compare_digest(" in (SRC / "aerobee" / name).read_text(), name
