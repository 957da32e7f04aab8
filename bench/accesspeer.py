"""What users cost a send, at our broker and at Apache's, over sockets. `make bench-access` runs it.

python bench/accesspeer.py [--scale 1.0] [--rounds 3] [--rows "NAME;NAME"] [--table]

Each broker runs without users, and with `authenticationEnabled` and `authorizationEnabled`. Apache's runs a third time
with its stateful strategies, which remember the verdicts of a connection. A normal user with Pub on the topic sends
the same signed frames to all, and unsigned ones to those without users. CPU is that of the broker's process (/proc).
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench import table
from bench.contenders import PROJECT, Contender, build_loadgen
from bench.frames import BINARY, send_templates
from bench.loads import run_loads
from bench.peer import Load

from aerobee.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import decode_frame, encode_command, request
from aerobee.protocol.headers.auth import CreateAclRequestHeader, CreateUserRequestHeader
from aerobee.protocol.headers.base import Header
from aerobee.protocol.headers.topic import CreateTopicRequestHeader
from aerobee.protocol.signing import signer
from aerobee.testing.secrets import secret_for

OUT = PROJECT / "out" / "bench"
KEPT = OUT / "access.json"
WARMING = 150_000
TOPIC, QUEUES = "bench", 4
ROOT = ("root", secret_for("root"))
SENDER = ("shop", secret_for("shop"))

LOADS = (
    Load("send 128 B, JSON"),
    Load("send 128 B, binary", codec=BINARY),
    Load("send 1 KB, JSON", size=1024),
    Load("send 128 B, 16 x 1 in flight", connections=16, window=1, count=60_000),
)
UNSIGNED, SIGNED, USERS, STATEFUL = "no users, unsigned", "no users", "users", "users, stateful"
# A send with users may cost this much of one without.
AIM = 1.55

_AUTH = "org.apache.rocketmq.auth"
WITH_USERS: dict[str, object] = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": secret_for("inner")}),
}
REMEMBERING: dict[str, object] = {
    "authenticationStrategy": f"{_AUTH}.authentication.strategy.StatefulAuthenticationStrategy",
    "authorizationStrategy": f"{_AUTH}.authorization.strategy.StatefulAuthorizationStrategy",
}


def _ask(broker: Contender, code: int, header: Header, body: bytes = b"") -> None:
    """Send a request as the Super user; it must succeed."""
    command = request(code, header, body, opaque=1)
    signer(*ROOT)(command)
    with socket.create_connection(("127.0.0.1", broker.port), timeout=30) as connection:
        connection.sendall(encode_command(command))
        with connection.makefile("rb") as stream:
            length = stream.read(4)
            answer = decode_frame(length + stream.read(int.from_bytes(length, "big")))
    if answer.code:
        raise SystemExit(f"{broker.name} refused request {code} with {answer.code}: {answer.remark}")


@dataclass
class Stand:
    """A broker, and the kinds of sends that are measured there."""

    broker: Contender
    kinds: Sequence[str]

    def prepare(self) -> None:
        """Make the topic; with users on, a normal user who may send to it, and check that nobody else may."""
        header = CreateTopicRequestHeader(
            topic=TOPIC, default_topic="TBW102", read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6,
            topic_filter_type="SINGLE_TAG",
        )  # fmt: skip
        _ask(self.broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        if SIGNED in self.kinds:
            return
        name, secret = SENDER
        user = UserInfo(password=secret, user_type="Normal", username=name)
        _ask(self.broker, RequestCode.AUTH_CREATE_USER, CreateUserRequestHeader(username=name), user.encode())
        entry = PolicyEntryInfo(("Pub",), "Allow", f"Topic:{TOPIC}")
        rights = AclInfo((PolicyInfo((entry,), "Custom"),), f"User:{name}")
        _ask(self.broker, RequestCode.AUTH_CREATE_ACL, CreateAclRequestHeader(subject=f"User:{name}"), rights.encode())


class AccessBench:
    """Runs the loads against all stands and keeps every figure."""

    def __init__(self, names: Sequence[str], rounds: int, scale: float) -> None:
        self.figures: table.Figures = {}
        self._names = names
        self._rounds = rounds
        self._scale = scale
        self._loadgen = build_loadgen(OUT / "loadgen")
        self._templates = OUT / "access-templates.bin"

    def _started(self) -> Iterator[Stand]:
        for name in self._names:
            work = OUT / "work"
            yield Stand(Contender(name, work / f"{name}-open", {}), (UNSIGNED, SIGNED))
            yield Stand(Contender(name, work / f"{name}-users", WITH_USERS), (USERS,))
            if name == table.APACHE:
                yield Stand(Contender(name, work / f"{name}-stateful", WITH_USERS | REMEMBERING), (STATEFUL,))

    def run(self, loads: Sequence[Load]) -> None:
        stands: list[Stand] = []
        try:
            for stand in self._started():
                stands.append(stand)
                stand.prepare()
            brokers = [stand.broker for stand in stands]
            for stand in stands:
                with stand.broker.running_alone(brokers):
                    self._refused(stand)
                    for _ in range(3):
                        self._generate(stand, Load("warming"), stand.kinds[-1], int(WARMING * self._scale))
            for load in loads:
                for _ in range(self._rounds):
                    for stand in stands:
                        with stand.broker.running_alone(brokers):
                            for kind in stand.kinds:
                                self._measure(stand.broker, stand, load, kind)
                for row in rows_of(load):
                    print("\n".join(table.lines(row, self.figures.get(row, {}), list(self._names))), flush=True)
        finally:
            for stand in stands:
                stand.broker.stop()

    def _refused(self, stand: Stand) -> None:
        """Check that a broker with users refuses an unsigned send: else nothing is measured here."""
        if UNSIGNED in stand.kinds:
            return
        answer = self._generate(stand, Load("unsigned", connections=1, window=1), UNSIGNED, 1)
        if not answer["refused"]:
            raise SystemExit(f"{stand.broker.name} took unsigned sends with users on")

    def _generate(self, stand: Stand, load: Load, kind: str, count: int) -> dict[str, Any]:
        sign = None if kind == UNSIGNED else signer(*SENDER)
        send_templates(self._templates, TOPIC, QUEUES, load.size, load.codec, sign=sign)
        numbers = (load.connections, load.window, count, load.rate, 120)
        words = [self._loadgen, "127.0.0.1", stand.broker.port, self._templates, "send", *numbers]
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
        if not done.stdout:
            raise SystemExit(f"{load.name}, {kind}, against {stand.broker.name}: {done.stderr.strip()}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def _measure(self, broker: Contender, stand: Stand, load: Load, kind: str) -> None:
        before_s = broker.usage().cpu_s
        answer = self._generate(stand, load, kind, int(load.count * self._scale))
        used_s = broker.usage().cpu_s - before_s
        kept = self.figures.setdefault(f"{load.name}, {kind}", {}).setdefault(broker.name, {})
        figures = {
            "per_second": answer["per_second"],
            "cpu_us": used_s / max(1, answer["messages"]) * 1e6,
            "refused": answer["refused"],
        }
        for key, value in figures.items():
            kept.setdefault(key, []).append(value)


def rows_of(load: Load) -> list[str]:
    return [f"{load.name}, {kind}" for kind in (UNSIGNED, SIGNED, USERS, STATEFUL)]


def added(figures: table.Figures, loads: Sequence[Load], names: Sequence[str]) -> str:
    """Return the second table: a send with users over one without, taken alternation by alternation."""
    made = [
        "| load | figure | compared | " + " | ".join(names) + " | aim of ours |",
        "|---|---|---|" + "---|" * (len(names) + 1),
    ]
    for load in loads:
        for key in ("cpu_us", "per_second"):
            for kind, base in ((USERS, SIGNED), (USERS, UNSIGNED), (STATEFUL, SIGNED)):
                cells = [_ratio(figures, f"{load.name}, {kind}", f"{load.name}, {base}", name, key) for name in names]
                if not any(cells):
                    continue
                aim = f"<= {AIM}x" if key == "cpu_us" and kind == USERS else ""
                label = table.FIGURES[key].label
                made.append(f"| {load.name} | {label} | {kind} / {base} | {' | '.join(cells)} | {aim} |")
    return "\n".join(made)


def _ratio(figures: table.Figures, row: str, base: str, name: str, key: str) -> str:
    over, under = (figures.get(one, {}).get(name, {}).get(key, []) for one in (row, base))
    found = [a / b for a, b in zip(over, under, strict=False) if b > 0]
    return f"{statistics.median(found):.2f}x ({min(found):.2f} to {max(found):.2f})" if found else ""


def _shown(figures: table.Figures, names: Sequence[str]) -> str:
    present = [row for load in LOADS for row in rows_of(load) if row in figures]
    return table.whole({row: figures[row] for row in present}, names) + "\n\n" + added(figures, LOADS, names)


def main() -> None:
    run_loads(__doc__, LOADS, KEPT, AccessBench, _shown)


if __name__ == "__main__":
    main()
