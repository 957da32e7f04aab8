"""Which Python .venv is made from: the first `python3` of PATH that was built with optimisation, else simply the first.

python3 tools/choose_python.py      prints its path; on standard error, why it is not the first

One built without (pyenv's default) makes every message 5 to 10 % dearer, and machines often have both. A Python
without venv, pip or its headers does not count: .venv and the compiled modules could not be made with it.
`make setup PY=...` chooses another.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

# Asked of each candidate. Distributions optimise their own (under /usr) in a build that leaves no trace of it.
LOOK = """
import ensurepip, json, os, sys, sysconfig, venv
usable = (3, 11) <= sys.version_info < (3, 14) and os.path.exists(sysconfig.get_path("include") + "/Python.h")
arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
optimised = "--enable-optimizations" in arguments or sys.prefix == "/usr"
print(json.dumps([usable, optimised, sys.executable, sys.version.split()[0]]))
"""


def look(path: Path) -> tuple[bool, str, str] | None:
    """(optimised, path, version); None where .venv cannot be made with it."""
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
