"""The witness: a client that sends, reads what was sent and asks for a route all the time while a case runs.

It is a process of its own, because in the attacker's process it would wait for the attacker's work. It reads one line
of JSON with what to watch, answers with the line `ready` after its first rounds, works until a second line comes, and
reports in one line what it saw.

It measures only waits that the server causes. The time in which the server's thread or the witness was ready to run
and got no core does not count (the kernel reports it in /proc).
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aerobee.hot.log.record import decode_records
from aerobee.model.numbers import parse_int
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command
from aerobee.runtime.clock import SystemClock
from aerobee.testing.hostile.attacker import Line

TOPIC: Final = "witness"
_PAUSE_S: Final = 0.005
_WARM_UP_ROUNDS: Final = 10
_CLOCK: Final = SystemClock()
# A send that is refused because the broker is busy or has no space does no harm. A lost message does.
_REFUSALS: Final = frozenset((2, 14))


def send_fields(number: int) -> dict[str, str]:
    """Return the fields of the witness's own sends."""
    return {
        "a": "witness", "b": TOPIC, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "0", "h": "0",
        "i": f"UNIQ_KEY\x01{number:032X}\x02", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip


def pull_fields(topic: str, queue_id: int, offset: int, count: int) -> dict[str, str]:
    """Return the fields of a pull that is answered at once."""
    return {
        "consumerGroup": "TOOLS_CONSUMER", "topic": topic, "queueId": str(queue_id), "queueOffset": str(offset),
        "maxMsgNums": str(count), "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
        "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip


class Witness:
    """The watch over one case."""

    def __init__(self, broker: str, namesrv: str, pid: int) -> None:
        self.longest_s = 0.0
        self.longest_by_the_clock_s = 0.0
        self.longest_at = ""
        self.rounds = 0
        self.acknowledged: list[str] = []
        self._broker = broker
        self._namesrv = namesrv
        self._pid = pid
        self._is_ready = False

    def watch(self) -> str:
        """Work until a line comes on stdin; return what went wrong, or an empty text."""
        try:
            with Line(self._broker) as broker, Line(self._namesrv) as namesrv:
                while not select.select([sys.stdin], [], [], _PAUSE_S)[0]:
                    self._round(broker, namesrv)
                    if self.rounds == _WARM_UP_ROUNDS:
                        self._be_ready()
        except (OSError, AssertionError) as error:
            self._be_ready()
            return f"the witness was cut off: {error!r}"
        return ""

    def _be_ready(self) -> None:
        if not self._is_ready:
            self._is_ready = True
            _say("ready")

    def _round(self, broker: Line, namesrv: Line) -> None:
        self.rounds += 1
        number = _CLOCK.now_ms() << 20 | self.rounds
        body = f"witness {number}"
        sent = self._ask("a send", broker, RequestCode.SEND_MESSAGE_V2, send_fields(number), body.encode())
        if sent.code:
            assert sent.code in _REFUSALS, f"a send was answered {sent.code}: {sent.remark}"
            return
        self.acknowledged.append(body)
        offset = parse_int(sent.ext["queueOffset"])
        pulled = self._ask("a pull", broker, RequestCode.PULL_MESSAGE, pull_fields(TOPIC, 0, offset, 1))
        if pulled.code == 0:
            found = [record.body for record in decode_records(pulled.body)]
            assert found == [body.encode()], f"a pull brought {found[0][:100]!r} for {body}"
        else:
            assert pulled.code in _REFUSALS, f"a pull was answered {pulled.code}: {pulled.remark}"
        self._ask("a route", namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC})

    def _ask(self, what: str, line: Line, code: int, ext: Mapping[str, str], body: bytes = b"") -> Command:
        began_s, idle_s = _CLOCK.monotonic(), self._idle_s()
        answer = line.ask(code, ext, body)
        wait_s = _CLOCK.monotonic() - began_s
        caused_s = max(0.0, wait_s - (self._idle_s() - idle_s))
        self.longest_by_the_clock_s = max(self.longest_by_the_clock_s, wait_s)
        if caused_s > self.longest_s:
            self.longest_s, self.longest_at = caused_s, what
        assert answer is not None, f"its connection was closed at {what}"
        return answer

    def _idle_s(self) -> float:
        """Return how long the server or the witness was ready to run and got no core, so far."""
        return _waited_for_a_core_s(self._pid) + _waited_for_a_core_s(os.getpid())


def _waited_for_a_core_s(pid: int) -> float:
    """Return the second number of schedstat of a process's first thread, or 0 where the system has none."""
    try:
        return parse_int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def main() -> None:
    """Serve watches until stdin ends."""
    while line := sys.stdin.readline():
        asked: dict[str, Any] = json.loads(line)
        witness = Witness(asked["broker"], asked["namesrv"], asked["pid"])
        problem = witness.watch()
        if not sys.stdin.readline():
            return
        said = {
            "longest_s": witness.longest_s, "by_the_clock_s": witness.longest_by_the_clock_s, "at": witness.longest_at,
            "acknowledged": witness.acknowledged, "rounds": witness.rounds, "problem": problem,
        }  # fmt: skip
        _say(json.dumps(said))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
