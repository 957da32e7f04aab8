"""Run what was installed: start a cluster, send, receive, and look at it with a command. Used by every wheel's build.

It uses nothing of the source tree. Exit code 0 means that it works. `--form` says which form must be installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

COUNT = 500


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--form", choices=("compiled", "interpreted"))
    form = parser.parse_args().form
    import aerobee
    from aerobee import sync

    here = Path(__file__).resolve().parents[1]
    if Path(aerobee.__file__).resolve().is_relative_to(here / "src"):
        print(f"smoke: aerobee is that of the source tree ({aerobee.__file__}), not an installed one")
        return 1
    said = command("--version").stdout.strip()
    print(f"smoke: {said} from {Path(aerobee.__file__).parent}")
    if form is not None and not said.endswith(f"({form})"):
        print(f"smoke: it should be {form}")
        return 1
    with tempfile.TemporaryDirectory(prefix="aerobee-smoke-") as data:
        words = ["up", "--namesrv-port", "0", "--broker-port", "0", "--data", data, "--json"]
        server = subprocess.Popen(
            [sys.executable, "-m", "aerobee", *words], stdout=subprocess.PIPE, text=True, cwd=data
        )
        try:
            assert server.stdout is not None
            namesrv = str(json.loads(server.stdout.readline())["namesrv"])
            use(namesrv, sync)
        finally:
            server.terminate()
            status = server.wait(60)
            if server.stdout is not None:
                server.stdout.close()
    print(f"smoke: {COUNT} messages sent and received, the server ended with {status}")
    return status


def use(namesrv: str, sync: object) -> None:
    """Create a topic by command, send to it, and receive everything."""
    command("topic", "create", "-t", "smoke", "-q", "4", "-n", namesrv)
    seen: set[bytes] = set()
    whole = threading.Event()
    consumer = sync.PushConsumer(namesrv, group="smoke", consume_from="first")  # type: ignore[attr-defined]

    @consumer.listener("smoke")  # type: ignore[untyped-decorator]
    def handle(message: object) -> None:
        seen.add(message.body)  # type: ignore[attr-defined]
        if len(seen) == COUNT:
            whole.set()

    with consumer, sync.Producer(namesrv) as producer:  # type: ignore[attr-defined]
        for number in range(COUNT):
            producer.send("smoke", b"%d" % number)
        if not whole.wait(60):
            raise SystemExit(f"smoke: only {len(seen)} of {COUNT} messages came")
    shown = json.loads(command("topic", "show", "-t", "smoke", "-n", namesrv, "--json").stdout)
    assert shown["messages"] == COUNT, shown


def command(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "aerobee", *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"smoke: aerobee {' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    return done


if __name__ == "__main__":
    sys.exit(main())
