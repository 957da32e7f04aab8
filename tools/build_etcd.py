"""Build etcd from its Go module into .build/etcd/, for tests of replicated groups (`make etcd`).

`go install` refuses the module of the server because it has replace directives, so a module of its own depends on it.
Where there is no Go, this says so and does nothing: tests that need etcd are then skipped.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "3.6.16"
PACKAGE = "go.etcd.io/etcd/server/v3"
TARGET = Path(__file__).parents[1] / ".build" / "etcd"


def main() -> int:
    binary = TARGET / "etcd"
    stamp = TARGET / "version"
    if binary.exists() and stamp.exists() and stamp.read_text() == VERSION:
        print(f"etcd: {VERSION} is built: {binary.relative_to(Path.cwd())}")
        return 0
    if shutil.which("go") is None:
        print("etcd: Go is not installed, so etcd is not built and tests that need it are skipped (https://go.dev/dl)")
        return 0
    module = TARGET / "module"
    shutil.rmtree(module, ignore_errors=True)
    module.mkdir(parents=True)
    print(f"etcd: building {VERSION}, which takes a minute or two", flush=True)
    for command in (
        ["go", "mod", "init", "aerobee.etcd"],
        ["go", "get", f"{PACKAGE}@v{VERSION}"],
        ["go", "build", "-trimpath", "-buildvcs=false", "-o", str(binary), PACKAGE],
    ):
        done = subprocess.run(
            command, cwd=module, env={**os.environ, "CGO_ENABLED": "0"}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(f"etcd: {' '.join(command)} failed:\n{done.stderr[-3000:]}", file=sys.stderr)
            return 1
    stamp.write_text(VERSION)
    print(f"etcd: {VERSION} is built: {binary.relative_to(Path.cwd())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
