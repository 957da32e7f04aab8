"""What a group of replicas promises, checked while a run goes on and at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from aerobee.replication.values import GroupState
from aerobee.testing.loop import Trace

if TYPE_CHECKING:
    from aerobee.store.messagestore import MessageStore
    from aerobee.testing.simulation.replicas.nodes import Node

# Size, queue, number in the queue, key.
Content = tuple[int, int, int, str]
_PROBLEMS_MAX = 20
# What a follower says whose log ends before its master's begins.
BEHIND = "the master's begins at"
# How long a master whose store has failed may stay master.
_FENCED_MAX_S = 1.5


class AckedRecord(NamedTuple):
    """A record that a master acknowledged."""

    epoch: int
    process: str
    offset: int
    end: int
    checksum: int


class ReplicaJudge:
    """Collects what happened, and says what must not have."""

    def __init__(self, trace: Trace) -> None:
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        self.nodes: Sequence[Node] = ()
        self.state = GroupState()
        self.acks: list[AckedRecord] = []
        self.sent = 0
        self._trace = trace
        # What any reader saw anywhere, by its place in the log.
        self._truth: dict[int, Content] = {}
        self._masters: dict[int, str] = {}
        # Set by faults that make a live master look dead: then two may believe for a moment.
        self.may_overlap = False

    def problem(self, words: str) -> None:
        self._trace.note("problem", words)
        if len(self.problems) < _PROBLEMS_MAX:
            self.problems.append(words)

    # ---- what is seen while it happens

    def saw(self, node: int, offset: int, content: Content) -> None:
        """Note that a reader on a node was shown a record."""
        known = self._truth.get(offset)
        if known is None:
            self._truth[offset] = content
            self._look_at_holders(node, offset, content)
        elif known != content:
            self.problem(f"readers saw {known} at {offset}, and now {content} on node {node}")

    def _look_at_holders(self, node: int, offset: int, content: Content) -> None:
        """Look whether everyone who can be elected has a record that a reader sees for the first time."""
        found: set[bytes] = set()
        for holder in self._electable():
            if holder.has[1] < offset + content[0]:
                self.problem(f"node {node} shows {offset}, and {holder.words} has stored {holder.has[1]} only")
            elif holder.store is not None:
                found.add(holder.store.read_log(offset, content[0]))
        if len(found) > 1:
            self.problem(f"node {node} shows {offset}, and those who can be elected hold different records there")

    def refused(self, kind: str, words: str) -> None:
        self.counts[f"refused: {words[:40]}"] += 1

    def acked(self, node: Node, process: str, epoch: int, offset: int, end: int, checksum: int) -> None:
        """Note an acknowledgement, and look whether everyone who can be elected has the record."""
        self._trace.note("acked", process, epoch, offset, end)
        self.acks.append(AckedRecord(epoch, process, offset, end, checksum))
        if self._masters.setdefault(epoch, process) != process:
            self.problem(f"{self._masters[epoch]} and {process} both acknowledge in epoch {epoch}")
        self.look_at_authority()
        for holder in self._electable():
            if holder.has[1] < end:
                self.problem(f"{process} acknowledges {end}, and {holder.words} has stored {holder.has[1]} only")
            elif holder.store is not None and crc32(holder.store.read_log(offset, end - offset)) != checksum:
                self.problem(f"{process} acknowledges {end}, and {holder.words} has something else there")

    def _electable(self) -> list[Node]:
        """Return the nodes that could be elected, under the incarnation that they have."""
        state = self.state
        known = {**state.in_sync, **(state.eligible if len(state.in_sync) < state.min_in_sync else {})}
        return [node for node in self.nodes if known.get(node.replica_id, "-") == node.has[0]]

    def leads(self, node: Node, store: MessageStore, epoch: int) -> None:
        """Note that a broker is told to lead: nothing that was acknowledged may be missing there."""
        self._trace.note("leads", node.machine.process, epoch)
        self.counts["elections"] += 1
        for ack in self.acks:
            if ack.end > store.dispatched_offset:
                self.problem(f"replica {node.replica_id} leads epoch {epoch} and does not show {ack.end}, which was"
                             f" acknowledged in epoch {ack.epoch}")  # fmt: skip
                break

    def changed(self, before: GroupState, after: GroupState) -> None:
        """Note a change of the stored state. Each must follow from the one before."""
        self.state = after
        last = max((ack.end for ack in self.acks), default=0)
        for holder in self._electable():
            if holder.has[1] < last:
                self.problem(f"{holder.words} can be elected with {holder.has[1]}, and {last} is acknowledged: {after}")
        learners = [one.replica_id for one in self.nodes if one.learner]
        if any(number in after.in_sync or number == after.master for number in learners if number):
            self.problem(f"a learner is in the set or leads: {after}")
        if not before.revision:
            if after.epoch != 1:
                self.problem(f"the first state is {after}")
            return
        if after.master is not None and (after.master != before.master or after.epoch != before.epoch):
            if after.epoch != before.epoch + 1:
                self.problem(f"{before} became {after}: a new master without a new epoch")
            electable = {**before.in_sync, **(before.eligible if len(before.in_sync) < before.min_in_sync else {})}
            if electable.get(after.master) != after.in_sync.get(after.master, "-"):
                self.problem(f"{before} became {after}: the new master could not be elected")
        elif after.epoch != before.epoch:
            self.problem(f"{before} became {after}: a new epoch without a master")

    def look_at_authority(self) -> None:
        """Look whether two replicas believe at the same time that they may act as master."""
        claims = [
            node.machine.process
            for node in self.nodes
            if node.is_up and node.replica is not None and node.replica.has_authority()
        ]
        if len(claims) > 1 and not self.may_overlap:
            self.problem(f"{' and '.join(claims)} both believe to have authority")

    def look_at_failures(self, now_s: float) -> None:
        """Look whether a master whose store has failed gives up."""
        for node in self.nodes:
            if node.store is None or node.store.fenced is None or node.is_paused or not node.leading_epoch:
                node.fenced_s = 0.0
            elif not node.fenced_s:
                node.fenced_s = now_s
            elif now_s - node.fenced_s > _FENCED_MAX_S:
                self.problem(f"node {node.number} stays master with a failed store")

    def halted(self, node: Node) -> None:
        """Note that a replica stopped by itself. Only a failed store is a reason."""
        self.counts["stopped by themselves"] += 1
        if BEHIND in node.stopped:
            self.counts["behind the first segment"] += 1
        elif "sync" not in node.stopped and "space" not in node.stopped:
            self.problem(f"node {node.number} stopped: {node.stopped}")

    # ---- the end

    def verdict(self) -> None:
        """Look at the logs of all replicas after everything is mended and quiet."""
        logs = {node.number: node.store for node in self.nodes if node.store is not None}
        for number, store in logs.items():
            for ack in self.acks:
                if ack.offset < store.log_start:
                    continue
                if crc32(store.read_log(ack.offset, ack.end - ack.offset)) != ack.checksum:
                    self.problem(f"lost: {ack.offset} of epoch {ack.epoch} is not in the log of node {number}")
                    break
            for offset, content in self._truth.items():
                if store.log_start <= offset and offset + content[0] > store.log_end:
                    self.problem(f"taken back: {content} at {offset} was seen and is not in the log of node {number}")
                    break
        stores = list(logs.values())
        for one, other in pairwise(stores):
            start = max(one.log_start, other.log_start)
            end = min(one.confirmed_offset, other.confirmed_offset)
            if _bytes(one, start, end) != _bytes(other, start, end):
                self.problem(f"two logs differ between {start} and {end}")
        numbers: dict[int, int] = {}
        for offset, content in sorted(self._truth.items()):
            _, queue, number, _ = content
            if numbers.get(queue, -1) + 1 != number:
                self.problem(f"queue {queue} goes from {numbers.get(queue, -1)} to {number} at {offset}")
            numbers[queue] = number
        self.counts["acknowledged"] += len(self.acks)
        self.counts["sent"] += self.sent


def _bytes(store: MessageStore, start: int, end: int) -> bytes:
    found = b""
    while start < end:
        data = store.read_log(start, end - start)
        if not data:
            break
        found += data
        start += len(data)
    return found
