"""The judge of a run with replicas. Pure, as the judge of a plain run.

With SYNC_MASTER nothing that was acknowledged is lost, whoever leads at the end. With ASYNC_MASTER a new master may
lack the tail that the old one had acknowledged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from aerobee.hot.log.record import Record
from aerobee.testing.simulation.group import GROUP, GroupLevel
from aerobee.testing.simulation.judge import Judge, Stored
from aerobee.testing.simulation.story import SendAck, Story

# Offsets are gathered for a second. Ticks and the watch of this run add a little.
_OLD_S: Final = 1.3
_GAP_S: Final = 0.15


class GroupJudge(Judge):
    """Judges the story of one group."""

    def __init__(self, story: Story, level: GroupLevel) -> None:
        super().__init__(story, {GROUP: level.sync_flush})
        self._level = level
        # Of each replica: where its log begins, how far it is confirmed, and its bytes up to there.
        self.logs: dict[str, tuple[int, bytes]] = {}
        # What each replica would serve after a power cut at the end.
        self.after_cuts: dict[str, tuple[int, list[Record]]] = {}

    def _has_lost_tail(self, broker: str) -> bool:
        return not self._level.sync_master and len(self._story.leads) > 1

    def _may_be_lost(self, ack: SendAck) -> bool:
        return not self._level.sync_master and any(at_s >= ack.at_s for _, _, at_s in self._story.leads)

    def _forgets_s(self, broker: str) -> float:
        """Return that locks are never forgotten: a new master knows those of the old one."""
        return float("inf")

    def verdict(self, stored: Sequence[Stored], after_cut: Mapping[str, tuple[int, list[Record]]]) -> list[str]:
        problems = super().verdict(stored, after_cut)
        for name, found in (
            ("two masters", list(self._two_masters())),
            ("logs differ", list(self._different())),
            ("lost by a power cut of a replica", list(self._lost_by_one())),
            ("old offsets", list(self._old_offsets())),
        ):
            problems += [f"{name}: {one}" for one in found]
        if problems:
            problems.append(f"the level was {self._level}")
        self.counts["elections"] = len(self._story.leads)
        return problems

    def _two_masters(self) -> Iterator[str]:
        counts = Counter(epoch for epoch, _, _ in self._story.leads)
        for epoch, count in counts.items():
            if count > 1:
                yield f"epoch {epoch} was led {count} times"

    def _different(self) -> Iterator[str]:
        """Tell where the confirmed logs of two replicas differ."""
        if not self.logs:
            return
        (first, (start, log)), *others = self.logs.items()
        for address, (other_start, other) in others:
            begin = max(start, other_start)
            ours, theirs = log[begin - start :], other[begin - other_start :]
            size = min(len(ours), len(theirs))
            if ours[:size] != theirs[:size]:
                at = next(i for i in range(size) if ours[i] != theirs[i])
                yield f"{first} and {address} at {begin + at}"

    def _old_offsets(self) -> Iterator[str]:
        """Tell offsets of a new master that are older than the promise allows: a second before the last moment at which
        its predecessor had served for a while with everything confirmed."""
        story = self._story
        reigns = list(zip(story.leads, story.led_offsets, strict=True))
        for ((_, _, began_s), before), ((epoch, _, led_s), led) in pairwise(reigns):
            settled_s = _calm_until([at_s for at_s in story.settled_s if began_s <= at_s < led_s])
            known = dict(before)
            for kept in story.progress:
                key = (kept.group, kept.place)
                if began_s <= kept.at_s <= settled_s - _OLD_S:
                    known[key] = kept.offset
                elif began_s <= kept.at_s < led_s and key in known:
                    known[key] = min(known[key], kept.offset)
            for key, offset in known.items():
                if led.get(key, 0) < offset:
                    yield f"epoch {epoch} began with {led.get(key, 0)} for {key}, and {offset} was kept before"

    def _lost_by_one(self) -> Iterator[str]:
        if self._level.sync_flush:
            for address, survived in self.after_cuts.items():
                for lost in self._lost({GROUP: survived}):
                    yield f"{address}: {lost}"


def _calm_until(settled_s: Sequence[float]) -> float:
    """Return the last of these moments before which there was such a moment all the time, for as long as offsets are
    gathered. A master that was stopped meanwhile could not journal."""
    calm_s = began_s = 0.0
    for before, after in pairwise([0.0, *settled_s]):
        if after - before > _GAP_S:
            began_s = after
        if after - began_s >= _OLD_S:
            calm_s = after
    return calm_s
