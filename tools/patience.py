"""Run a command that may be silent for long, and print a dot every other second while it runs.

python3 tools/patience.py "installing into .venv" COMMAND...      its output is shown where it fails
"""

import itertools
import subprocess
import sys
import tempfile

STEP_S = 2


def main() -> int:
    what, command = sys.argv[1], sys.argv[2:]
    print(f"setup: {what} ", end="", flush=True)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            code = _wait(process)
        except KeyboardInterrupt:
            process.wait()
            return 130
        output.seek(0)
        said = output.read().decode(errors="replace")
    if code:
        print(f"setup: {what} failed:\n{said}", flush=True)
    elif said.startswith("setup:"):
        print(said, end="", flush=True)
    return code


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Print a dot for every step, then the time that the process took."""
    for step in itertools.count(1):
        try:
            code = process.wait(STEP_S)
        except subprocess.TimeoutExpired:
            print(".", end="", flush=True)
        else:
            print(f" {step * STEP_S} s", flush=True)
            return code
    raise AssertionError


if __name__ == "__main__":
    sys.exit(main())
