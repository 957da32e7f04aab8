"""Build h2spec, the conformance test of HTTP/2 servers, from its Go module into .build/h2spec/ (`make h2spec`).

Where there is no Go, this says so and does nothing: the test that needs it is then skipped.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

# The repository has no go.mod at this version, so its name says that.
VERSION = "2.2.1+incompatible"
PACKAGE = "github.com/summerwind/h2spec/cmd/h2spec"
TARGET = Path(__file__).parents[1] / ".build" / "h2spec"


def main() -> int:
    binary, stamp = TARGET / "h2spec", TARGET / "version"
    if binary.exists() and stamp.exists() and stamp.read_text() == VERSION:
        return 0
    if shutil.which("go") is None:
        print("h2spec: Go is not installed, so h2spec is not built and its test is skipped (https://go.dev/dl)")
        return 0
    module = TARGET / "module"
    shutil.rmtree(module, ignore_errors=True)
    module.mkdir(parents=True)
    for command in (
        ["go", "mod", "init", "aerobee.h2spec"],
        ["go", "get", f"{PACKAGE}@v{VERSION}"],
        ["go", "build", "-trimpath", "-buildvcs=false", "-o", str(binary), PACKAGE],
    ):
        done = subprocess.run(
            command, cwd=module, env={**os.environ, "CGO_ENABLED": "0"}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(f"h2spec: {' '.join(command)} failed:\n{done.stderr[-3000:]}", file=sys.stderr)
            return 1
    stamp.write_text(VERSION)
    print(f"h2spec: {VERSION} is built: {binary.relative_to(Path.cwd())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
