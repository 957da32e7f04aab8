"""Tests take their secrets from `aerobee.testing.secrets`, so that the search at the end of a run knows them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
# Java signed the golden frames with it.
NOT_MADE = ("golden/test_signatures_golden.py",)
NAMES = re.compile(r"(?i)(^|_|\.|__)(secret_?key|key_?password|password|secret|passphrase)$|registryPassword$")
# They take a name and a secret.
WITH_A_SECRET = ("Credentials", "signer")
# A wrong secret opens nothing, words of one letter stand for any value, and the last is in Apache's sample.
HARMLESS = re.compile(r"(?i)wrong|\W|.?$|12345678$")


def literals_in(text: str) -> list[tuple[int, str]]:
    """Return the line and the name of each secret that is written as a literal."""
    found = []

    def take(name: object, value: ast.expr | None) -> None:
        if isinstance(name, str) and NAMES.search(name) and isinstance(value, ast.Constant):
            said = value.value
            if isinstance(said, str | bytes) and not HARMLESS.match(said if isinstance(said, str) else said.decode()):
                found.append((value.lineno, name))

    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.keyword):
            take(node.arg, node.value)
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                take(key.value if isinstance(key, ast.Constant) else None, value)
        elif isinstance(node, ast.Call):
            if getattr(node.func, "id", None) in WITH_A_SECRET and len(node.args) > 1:
                take("secret", node.args[1])
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                take(getattr(target, "id", None), node.value)
    return found


def test_no_secret_is_a_literal() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line} {name}"
        for path in sorted(TESTS.rglob("*.py"))
        if path.relative_to(TESTS).as_posix() not in NOT_MADE and path.parent.name != "tidy"
        for line, name in literals_in(path.read_text())
    ]
    assert found == [], "take it from aerobee.testing.secrets"


@pytest.mark.parametrize(
    "line",
    [
        'f(secret_key="hush")',
        '{"password": "hush"}',
        'PASSWORD = "hush"',
        '{"tls.server.keyPassword": "hush"}',
        'Credentials("me", "hush")',
    ],
)
def test_a_literal_is_found(line: str) -> None:
    assert literals_in(line)
