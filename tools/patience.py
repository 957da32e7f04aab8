"""Run a command that may be silent for long, and say every few seconds that it still runs.

python3 tools/patience.py "installing into .venv" COMMAND...      its output is shown where it fails
"""

import itertools
import subprocess
import sys
import tempfile

STEP_S = 3


def main() -> int:
    what, command = sys.argv[1], sys.argv[2:]
    print(f"setup: {what}", flush=True)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            code = _wait(process, what)
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


def _wait(process: subprocess.Popen[bytes], what: str) -> int:
    # On a terminal one line is written over again and again.
    begin, end = ("\r\x1b[K", "") if sys.stdout.isatty() else ("", "\n")
    for step in itertools.count(1):
        try:
            code = process.wait(STEP_S)
        except subprocess.TimeoutExpired:
            print(f"{begin}setup: {what}, {step * STEP_S} s", end=end, flush=True)
        else:
            print(begin, end="", flush=True)
            return code
    raise AssertionError


if __name__ == "__main__":
    sys.exit(main())
