"""Fetch axe-core into .build/axe: the tests of the dashboard check their pages with it.

It is a few hundred kilobytes under another licence (MPL 2.0), so it is not kept here.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "4.14.0"
SHA256 = "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878"
TARGET = Path(".build/axe/axe.min.js")


def main() -> int:
    if TARGET.exists() and hashlib.sha256(TARGET.read_bytes()).hexdigest() == SHA256:
        return 0
    with tempfile.TemporaryDirectory() as directory:
        try:
            command = ["npm", "pack", "--silent", f"axe-core@{VERSION}"]
            subprocess.run(command, cwd=directory, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"axe-core {VERSION} cannot be fetched by npm: {error}", file=sys.stderr)
            return 1
        (packed,) = Path(directory).glob("*.tgz")
        with tarfile.open(fileobj=io.BytesIO(packed.read_bytes())) as archive:
            member = archive.extractfile("package/axe.min.js")
            assert member is not None
            data = member.read()
    if hashlib.sha256(data).hexdigest() != SHA256:
        print(f"axe-core {VERSION} is not the file that was expected", file=sys.stderr)
        return 1
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
