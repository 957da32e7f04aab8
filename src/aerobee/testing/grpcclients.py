"""RocketMQ's official 5.x clients of other languages as test peers: small programs on them, built once.

The sources are in `tests/interop`, what is built lies in `.build/interop`. Each program takes the address of a gRPC
front and words `what:topic`, and prints `done what:topic` for each that worked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from aerobee.errors import AerobeeError
from aerobee.testing.apache import PROJECT, grpc_client_classpath

_BUILD_LIMIT_S = 3000
_JAVA_LIMIT_S = 300


class NoClientError(AerobeeError):
    """The program cannot be built here. The message says why."""


def _built(language: str, tools: tuple[str, ...], commands: list[list[str]], product: str) -> Path:
    """Return the product of commands that run in a copy of the sources, which is newer than they are."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        raise NoClientError(f"needs {' and '.join(missing)} on the PATH")
    source, target = PROJECT / "tests" / "interop" / language, PROJECT / ".build" / "interop" / language
    made, stamp = target / product, target / "built"
    newest_s = max(path.stat().st_mtime for path in source.rglob("*") if path.is_file())
    if made.exists() and stamp.exists() and stamp.stat().st_mtime >= newest_s:
        return made
    shutil.copytree(source, target, dirs_exist_ok=True)
    for command in commands:
        done = subprocess.run(
            ["nice", *command], cwd=target, capture_output=True, text=True, timeout=_BUILD_LIMIT_S, check=False
        )
        if done.returncode:
            raise NoClientError(f"{' '.join(command)} failed: {(done.stdout + done.stderr)[-2000:]}")
    stamp.touch()
    return made


def node() -> list[str]:
    """Return the command of the program on rocketmq-client-nodejs."""
    install = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
    return ["node", str(_built("node", ("node", "npm"), [install], "clients.js"))]


def go() -> list[str]:
    """Return the command of the program on the Go client."""
    commands = [["go", "mod", "tidy"], ["go", "build", "-o", "clients", "."]]
    return [str(_built("go", ("go",), commands, "clients"))]


def rust() -> list[str]:
    """Return the command of the program on the crate rocketmq."""
    return [str(_built("rust", ("cargo", "cc"), [["cargo", "build", "-q", "-j", "1"]], "target/debug/interop"))]


LANGUAGES: dict[str, Callable[[], list[str]]] = {"node": node, "go": go, "rust": rust}


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return the environment of a program, whose logs go below `home`."""
    return {**os.environ, "HOME": str(home), "rocketmq.client.logRoot": str(home / "logs"), **more}


def run_java(address: str, *words: str) -> None:
    """Run the program on rocketmq-client-java. Raise AssertionError unless it has done each word."""
    java = ["java", "-Xmx256m", "-cp", grpc_client_classpath(), "interop.Clients", address]
    done = subprocess.run([*java, *words], capture_output=True, text=True, timeout=_JAVA_LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.split("\n")[:-1] == [f"done {word}" for word in words]
