"""Record frames that the hooks of Apache's clients have signed: `python tests/golden/record_signatures.py`.

It needs Maven, a JDK and the registry, and writes tests/golden/data/signatures.txt: the version and the frame in hex.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
POM = HERE.parent / "interop" / "java" / "driver" / "pom.xml"
# The client and its ordinal in MQVersion.
VERSIONS = (("4.9.3", 399), ("4.9.8", 409), ("5.5.0", 513))
COUNT = 34


def main() -> None:
    """Compile the generator against each client, run it, and write what it printed."""
    lines = []
    for version, ordinal in VERSIONS:
        jars = classpath(version)
        with tempfile.TemporaryDirectory() as work:
            source = HERE / "java" / "signatures" / "Signatures.java"
            subprocess.run(["javac", "-encoding", "UTF-8", "-cp", jars, "-d", work, str(source)], check=True)
            command = ["java", "-cp", f"{work}:{jars}", "Signatures", str(ordinal), str(COUNT)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        lines += [f"{version} {line[6:]}" for line in done.stdout.splitlines() if line.startswith("FRAME ")]
    (HERE / "data" / "signatures.txt").write_text("\n".join(lines) + "\n")


def classpath(version: str) -> str:
    """Return the jars of one client."""
    with tempfile.NamedTemporaryFile(suffix=".txt") as answer:
        subprocess.run(
            [
                "mvn", "-q", "-B", "-f", str(POM), f"-Drocketmq.version={version}", "dependency:build-classpath",
                f"-Dmdep.outputFile={answer.name}",
            ],
            check=True,
        )  # fmt: skip
        return Path(answer.name).read_text().strip()


if __name__ == "__main__":
    main()
