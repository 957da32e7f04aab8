"""Compile hot/ in place, or say why it stays interpreted. `make setup` runs this when a compiled file changed.

python tools/compile_hot.py STAMP      writes to the file STAMP what was built
"""

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
ROOT = Path(__file__).parent.parent


def main(stamp: Path) -> int:
    if os.environ.get("AEROBEE_PURE"):
        print("setup: AEROBEE_PURE is set, hot/ stays interpreted")
        return 0
    for stale in (ROOT / "src").rglob("*.so"):
        stale.unlink()
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "--build-temp", ".build/temp"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    built = list((ROOT / "src").rglob("*.so"))
    if done.returncode or not built:
        print("setup: hot/ stays interpreted (it works, only slower):")
        print((done.stderr or done.stdout).strip()[-2000:] or "  no C compiler found")
        # A build that failed is tried again by the next `make setup`, and `make test` does not accept it.
        if done.returncode:
            stamp.unlink(missing_ok=True)
        else:
            stamp.write_text("interpreted\n")
        return 0
    stamp.write_text(f"{len(built)} modules\n")
    print(f"setup: hot/ compiled ({len(built)} modules)")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
