"""POP under faults: consumers pop, acknowledge and change while their broker is killed, cut off power, and restarted.

One broker without a network, on a simulated disk and virtual time, from a seed. A book keeps what each consumer was
told. It knows what must hold: nothing that was acknowledged with an answer comes again, everything else does, nobody
gets what another holds, nothing comes late, tries are counted right, and the saved offset is never ahead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aerobee.protocol.codes import ResponseCode
from aerobee.testing.brokerkit import BrokerKit, settle
from aerobee.testing.clock import VirtualClock
from aerobee.testing.crash import CrashMode
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.entropy import SeededEntropy
from aerobee.testing.loop import VirtualLoop
from aerobee.testing.popkit import Popped, ack_request, change, pop, pop_request, with_topic
from aerobee.testing.simulation.run import RunOutcome, run_virtually
from aerobee.testing.storekit import draft, small_config

STEPS: Final = 60
_QUEUES: Final = 2
# A message is back so soon after its time: a tick of 50 ms, a tenth of a second, and the tick that stores it.
_LATE_MS: Final = 350
_TICK_S: Final = 0.05


@dataclass(slots=True)
class _Note:
    """What the book says of one message."""

    message: Popped | None = None
    # Until when nobody else may get it, as far as crashes leave that known; and until when its handle may be good.
    deadline_ms: int = 0
    good_ms: int = 0
    # How often it came back without being suspended, as far as is known; -1 for not known since a crash.
    tries: int = 0
    suspended: bool = False
    acked: bool = False
    # It was acknowledged, and an answer came; a crash may have forgotten it.
    in_doubt: bool = False
    # A power cut may have torn the write of its copy and of the record that says so: there are two copies then.
    twice: bool = False


class PopRun:
    """One run of one seed."""

    def __init__(self, loop: VirtualLoop, outcome: RunOutcome) -> None:
        self._outcome = outcome
        self._entropy = SeededEntropy(outcome.seed)
        self._clock = VirtualClock(loop.time, wall_ms=1_700_000_000_000)
        self._is_sync = outcome.seed % 3 != 0
        self._kit = self._start(RecordingDisk(seed=outcome.seed))
        self._book: dict[bytes, _Note] = {}
        self._stored = 0

    def _start(self, disk: RecordingDisk) -> BrokerKit:
        return BrokerKit(disk, self._clock, None, small_config(segment=1 << 20, sync=self._is_sync))

    def _bad(self, what: str) -> None:
        if len(self._outcome.problems) < 20:
            self._outcome.problems.append(what)

    async def run(self) -> None:
        with_topic(self._kit, _QUEUES)
        await self._store_more()
        for _ in range(STEPS):
            await self._step()
            if self._outcome.problems:
                return
        await self._drain()
        self._kit.close()

    async def _store_more(self) -> None:
        count = 5 + self._entropy.below(40)
        for _ in range(count):
            self._kit.store.append([draft(b"%d" % self._stored, b"T", self._entropy.below(_QUEUES))])
            self._book[b"%d" % self._stored] = _Note()
            self._stored += 1
        # Stored for good before anybody pops them: these runs are about POP.
        await self._kit.pass_time(2, _TICK_S)
        self._outcome.counts["stored"] += count

    async def _step(self) -> None:
        turn = self._entropy.below(100)
        if turn < 34:
            await self._pop()
        elif turn < 60:
            await self._ack()
        elif turn < 70:
            await self._change()
        elif turn < 80:
            await self._kit.pass_time(0.2 + self._entropy.below(30) / 10, _TICK_S)
        elif turn < 84:
            await self._sweep()
        elif turn < 88:
            await self._die_while_waiting()
        elif turn < 91:
            await self._stale_ack()
        elif turn < 94:
            await self._store_more()
        else:
            await self._crash(turn)

    # -- what consumers do

    async def _pop(self, count: int = 0) -> int:
        invisible_ms = 500 + self._entropy.below(5_000)
        found = await pop(self._kit, count=count or 1 + self._entropy.below(12), invisible_ms=invisible_ms)
        now_ms = self._clock.now_ms()
        for one in found:
            self._came(one, now_ms, invisible_ms)
        self._outcome.counts["popped"] += len(found)
        return len(found)

    def _came(self, one: Popped, now_ms: int, invisible_ms: int) -> None:
        note = self._book[one.body]
        if note.twice:
            self._book[one.body] = _Note(one, 0, now_ms + invisible_ms, -1, twice=True)
            return
        if note.acked and not note.in_doubt:
            self._bad(f"message {one.body!r} was acknowledged with an answer, and came again")
        if note.message is not None and now_ms < note.deadline_ms:
            self._bad(f"message {one.body!r} came to a second consumer {note.deadline_ms - now_ms} ms too early")
        times = one.record.reconsume_times
        if note.message is not None and note.tries >= 0:
            expected = note.tries + (0 if note.suspended else 1)
            if times != expected:
                self._bad(f"message {one.body!r} counts {times} tries, and it came back {expected} times")
        self._book[one.body] = _Note(one, now_ms + invisible_ms, now_ms + invisible_ms, times)

    def _held(self) -> list[bytes]:
        now_ms = self._clock.now_ms()
        return sorted(
            body for body, note in self._book.items()
            if note.message is not None and not note.acked and note.good_ms > now_ms + 100
        )  # fmt: skip

    async def _ack(self) -> None:
        held = self._held()
        for _ in range(min(len(held), 1 + self._entropy.below(8))):
            body = held.pop(self._entropy.below(len(held)))
            note = self._book[body]
            assert note.message is not None
            client = self._kit.connect()
            client.send(ack_request(note.message))
            if self._entropy.below(8) == 0:
                note.in_doubt = note.acked = True  # the consumer does not wait for the answer
                continue
            await settle()
            for _ in range(200):
                answers = await client.answers()
                if answers:
                    break
                await self._kit.pass_time(_TICK_S, _TICK_S)
            else:
                self._bad("an acknowledgement is not answered")
                return
            if answers[0].code == ResponseCode.SUCCESS:
                note.acked = True
                self._outcome.counts["acknowledged"] += 1

    async def _stale_ack(self) -> None:
        """Acknowledge by a handle that is over: it must have no effect."""
        now_ms = self._clock.now_ms()
        over = sorted(
            body for body, note in self._book.items()
            if note.message is not None and not note.acked and note.good_ms + 1_500 < now_ms
        )  # fmt: skip
        for body in over[:3]:
            message = self._book[body].message
            assert message is not None
            await self._kit.connect().call(ack_request(message))

    async def _change(self) -> None:
        held = self._held()
        if not held:
            return
        body = held[self._entropy.below(len(held))]
        note = self._book[body]
        assert note.message is not None
        invisible_ms, suspend = 200 + self._entropy.below(6_000), self._entropy.below(3) == 0
        client_now_ms = self._clock.now_ms()
        answer = await change(self._kit, note.message, invisible_ms, suspend=suspend)
        if answer.code == 0:
            note.deadline_ms = note.good_ms = client_now_ms + invisible_ms
            note.suspended = suspend
            self._outcome.counts["changed"] += 1

    async def _die_while_waiting(self) -> None:
        """Pop and be gone: the next consumer has the messages, or nothing was taken."""
        client = self._kit.connect()
        client.send(pop_request(self._kit, count=4, poll_ms=5_000, invisible_ms=2_000))
        client.close()
        await settle()
        answers = await client.answers()
        for answer in answers:
            if answer.code == 0:
                self._outcome.counts["answered to nobody"] += 1
                for note in self._book.values():
                    note.tries = -1
        if self._entropy.below(2):
            await self._store_more()
        # What the answer to nobody held comes back in its time; what was never answered comes at once.
        for body, note in self._book.items():
            if note.message is None and not note.acked:
                self._book[body].tries = -1

    # -- faults

    async def _crash(self, turn: int) -> None:
        kit, disk = self._kit, self._kit.store.disk
        assert isinstance(disk, RecordingDisk)
        kind = ("kill", "kill", "power", "restart", "power", "kill")[turn - 94]
        self._outcome.faults[kind] += 1
        if kind == "restart":
            kit.close()
            image = disk.kill()
        elif kind == "kill":
            image = disk.kill()
        else:
            modes = list(CrashMode)
            image = disk.crash(modes[self._entropy.below(len(modes))], self._entropy.below(1 << 30))
        if self._entropy.below(4) == 0:
            for name in ("state", "state.tmp"):
                if image.exists(f"{kit.store.root}/pop/{name}"):
                    image.unlink(f"{kit.store.root}/pop/{name}")
        for note in self._book.values():
            note.tries = -1
            if kind == "power" and not self._is_sync and note.acked:
                note.in_doubt = True
            note.twice = note.twice or (kind == "power" and not (note.acked and not note.in_doubt))
            if kind != "restart" and not (note.acked and not note.in_doubt):
                note.deadline_ms = 0  # the take itself may be lost: a pop waits for nothing
        self._kit = self._start(image)
        self._check_saved()
        await self._kit.pass_time(0.2, _TICK_S)

    def _check_saved(self) -> None:
        """Check that no saved offset is above a message that was taken there and not acknowledged."""
        table = self._kit.broker.tables.offsets.table
        lowest: dict[tuple[str, int], int] = {}
        for note in self._book.values():
            if note.message is not None and not note.acked:
                place = f"{note.message.topic}@G", note.message.queue_id
                lowest[place] = min(note.message.offset, lowest.get(place, 1 << 62))
        for (key, queue_id), offset in lowest.items():
            saved = table.get(key, {}).get(queue_id, 0)
            copies = self._kit.store.max_offset(b"%RETRY%G_T", 0)
            if saved > offset and not copies:
                self._bad(f"{key} queue {queue_id}: offset {saved} is saved, and {offset} is not acknowledged")

    # -- the end

    async def _sweep(self) -> None:
        """Pop everything that is there: what nobody holds must come, and in time."""
        now_ms = self._clock.now_ms()
        owed = {
            body for body, note in self._book.items()
            if not note.acked and note.deadline_ms + _LATE_MS < now_ms and note.tries >= 0 and note.message is not None
        }  # fmt: skip
        for _ in range(40):
            if not await self._pop(32):
                break
        late = sorted(body for body in owed if self._book[body].deadline_ms < now_ms and not self._book[body].acked)
        if late:
            self._bad(f"{len(late)} messages are late or lost, as {late[0]!r}")

    async def _drain(self) -> None:
        """At the end everything that is not acknowledged comes, and can be acknowledged."""
        for _ in range(60):
            await self._kit.pass_time(0.5, _TICK_S)
            while await self._pop(32):
                pass
            for body in self._held():
                note = self._book[body]
                assert note.message is not None
                answer = await self._kit.connect().call(ack_request(note.message))
                note.acked = answer.code == 0
            if all(note.acked for note in self._book.values()):
                break
        lost = sorted(body for body, note in self._book.items() if not note.acked)
        if lost:
            self._bad(f"{len(lost)} messages never came, as {lost[0]!r}")
        await self._kit.pass_time(8, 0.5)
        for one in await pop(self._kit):
            note = self._book[one.body]
            # A kill may have come before an acknowledgement whose answer nobody waited for.
            if not (note.twice or note.in_doubt):
                self._bad(f"message {one.body!r} came after everything was acknowledged")


async def _run(loop: VirtualLoop, outcome: RunOutcome) -> None:
    await PopRun(loop, outcome).run()
    outcome.virtual_s = loop.time()


def run_pops(seed: int) -> RunOutcome:
    """Run one seed."""
    return run_virtually(seed, lambda loop, outcome: _run(loop, outcome))
