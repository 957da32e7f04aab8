"""Choose the Python for .venv: the first `python3` of PATH that was built with optimisation, else the first.

python3 tools/choose_python.py      prints its path, and on standard error why it is not the first

Every message costs 5 to 10 % more in a Python built without optimisation (pyenv's default), and machines often have
both. A Python without venv, pip or its headers does not count: .venv and the compiled modules need them.
`make setup PY=...` chooses another.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

# Each candidate runs this. Distributions optimise their own Python (under /usr) in a build that leaves no trace of it.
LOOK = """
import ensurepip, json, os, sys, sysconfig, venv
usable = (3, 11) <= sys.version_info < (3, 14) and os.path.exists(sysconfig.get_path("include") + "/Python.h")
arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
optimised = "--enable-optimizations" in arguments or sys.prefix == "/usr"
print(json.dumps([usable, optimised, sys.executable, sys.version.split()[0]]))
"""


def look(path: Path) -> tuple[bool, str, str] | None:
    """Return (optimised, path, version), or None where .venv cannot be made with this Python."""
    done = subprocess.run([path, "-I", "-c", LOOK], capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    usable, optimised, executable, version = json.loads(done.stdout)
    return (optimised, executable, version) if usable else None


def main() -> int:
    paths = [Path(directory) / "python3" for directory in os.get_exec_path()]
    found = [seen for path in paths if os.access(path, os.X_OK) and (seen := look(path))]
    first = found[0] if found else (False, "python3", "")  # making .venv will say what is missing
    _, chosen, version = next((seen for seen in found if seen[0]), first)
    if chosen != first[1]:
        why = f"{first[1]} was built without optimisation"
        print(f"setup: taking Python {version} of {chosen}, since {why} (PY=... takes another)", file=sys.stderr)
    print(chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
