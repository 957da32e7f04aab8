"""The coordinator of one group over a coordination store: the driver behind `aerobee.replication.coordinator`.

A watch tells changes at once. A read every other second tells what a watch has missed, because a watch may be silent
for ever when its server has lost the others. Only the compare-and-swap of the state carries safety.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from aerobee.coordination.records import GroupKeys, decode_record, decode_state, encode_record
from aerobee.coordination.values import (
    CoordinationRefusedError,
    DeleteKeys,
    KeyCompare,
    KeyStore,
    KeyValue,
    LeaseMissingError,
    PutKey,
    ReadKeys,
    Txn,
    WatchBatch,
    prefix_end,
)
from aerobee.errors import AerobeeError, CoordinationError
from aerobee.model.numbers import parse_int
from aerobee.replication.coordinator import Outcome
from aerobee.replication.values import GroupState, GroupView, LiveReplica, ReplicaMember
from aerobee.runtime.seams import Clock
from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

# A lease lives for this long without its keeper. etcd's floor is 2 s, and a new leader of etcd prolongs every lease.
LEASE_S: Final = 4
_POLL_S: Final = 2.0
_PAUSE_S: Final = 0.2
# Requests without an answer can arrive late and overwrite what was published, but not so often.
_OVERWRITTEN_MAX: Final = 5
# How often joining is tried when others join at the same moment.
_JOIN_TRIES: Final = 20

_log = get_log("coordination")


class GroupCoordinator:
    """One group's place in a coordination store."""

    def __init__(self, store: KeyStore, cluster: str, group: str, clock: Clock) -> None:
        self._store = store
        self._group = group
        self._keys = GroupKeys(cluster, group)
        self._all = ReadKeys(key=self._keys.prefix, end=prefix_end(self._keys.prefix))
        self._warn = RateLimitedLog(_log, clock)
        self._tasks = Tasks(self._task_failed)
        self._watching: asyncio.Task[None] | None = None
        # What is stored, as of a revision. None until the first read.
        self._table: Mapping[bytes, KeyValue] | None = None
        self._revision = 0
        self._changed: Callable[[GroupView], None] | None = None
        # The lease of this process, what was published under it, and whether another process took its place.
        self._lease = 0
        self._published: LiveReplica | None = None
        self._published_at = 0
        self._overwritten = 0
        self._is_displaced = False

    # --- members and state

    async def join(self, member: ReplicaMember, starts: Collection[str] = ()) -> ReplicaMember:
        """Store a member and return it. An id of 0 asks for a new id, or for the one that this incarnation got when the
        answer was lost. Raise CoordinationError if another start than these joined last under the id."""
        for _ in range(_JOIN_TRIES):
            _, table = await self._read()
            joined = self._member_to_store(member, table)
            stored = table.get(self._keys.member(joined.id))
            if starts and stored is not None:
                self._refuse_a_copy(decode_record(ReplicaMember, stored.key, stored.value), starts)
            next_id = table.get(self._keys.next_id)
            txn = Txn(
                compares=(
                    KeyCompare(key=self._keys.member(joined.id), operand=0 if stored is None else stored.mod_revision),
                    KeyCompare(key=self._keys.next_id, operand=0 if next_id is None else next_id.mod_revision),
                ),
                success=(
                    PutKey(key=self._keys.member(joined.id), value=encode_record(joined)),
                    PutKey(key=self._keys.next_id, value=b"%d" % max(joined.id + 1, _number(next_id))),
                ),
            )
            if (await self._store.txn(txn)).succeeded:
                return joined
        raise CoordinationError(f"group {self._group} could not be joined: others changed it {_JOIN_TRIES} times")

    def _member_to_store(self, member: ReplicaMember, table: Mapping[bytes, KeyValue]) -> ReplicaMember:
        next_id = _number(table.get(self._keys.next_id))
        if member.id:
            if member.id < next_id and self._keys.member(member.id) not in table:
                raise CoordinationError(
                    f"replica {member.id} is not a member of group {self._group} any more",
                    retriable=False,
                    hint="It was removed. An empty directory joins as a new replica.",
                )
            return member
        for other in self._members(table).values():
            if other.incarnation == member.incarnation:
                return replace(member, id=other.id)
        return replace(member, id=next_id)

    def _refuse_a_copy(self, known: ReplicaMember, starts: Collection[str]) -> None:
        if known.start and known.start not in starts:
            raise CoordinationError(
                f"replica {known.id} of group {self._group} ran from another directory last (at {known.address}): this"
                " one is a copy of it, or was restored from a backup, and may lack messages",
                retriable=False,
                hint="Start the other one. Or start with an empty directory: everything is then copied from the master."
                " If the coordination store was restored from a backup, give it its newest content.",
            )

    async def remove(self, number: int) -> bool:
        """Delete a member. Return False if there is none, or if the group changed meanwhile."""
        _, table = await self._read()
        stored = table.get(self._keys.member(number))
        state = table.get(self._keys.state)
        if stored is None:
            return False
        txn = Txn(
            compares=(
                KeyCompare(key=stored.key, operand=stored.mod_revision),
                KeyCompare(key=self._keys.state, operand=0 if state is None else state.mod_revision),
            ),
            success=(DeleteKeys(key=stored.key), DeleteKeys(key=self._keys.live(number))),
        )
        return (await self._store.txn(txn)).succeeded

    async def view(self) -> GroupView:
        """Return the current view by a linearizable read."""
        revision, table = await self._read()
        return self._view(revision, table)

    async def replace(self, seen: GroupState, new: GroupState) -> Outcome:
        """Store a new state if the stored one still has the revision of `seen`. It is tried once: a second try of a
        change that was stored would look like a refusal."""
        txn = Txn(
            compares=(KeyCompare(key=self._keys.state, operand=seen.revision),),
            success=(PutKey(key=self._keys.state, value=encode_record(new)),),
        )
        try:
            result = await self._store.txn(txn)
        except AerobeeError as error:
            self._complain("a change of the group's state has no answer", error)
            return Outcome.UNKNOWN
        return Outcome.DONE if result.succeeded else Outcome.REFUSED

    # --- the lease

    async def keep(self, live: LiveReplica) -> float:
        """Keep this process's lease alive, opening one where there is none, and publish `live` under it. Return the
        lease's time to live in seconds. The caller counts it from the moment at which it made the call."""
        if self._is_displaced:
            raise CoordinationError(
                f"another process took the place of replica {live.id} of group {self._group}",
                retriable=False,
                hint="Two processes must not share a replica's directory or a copy of it. Stop one of them.",
            )
        try:
            return await self._kept(live)
        except CoordinationError:
            self._overwritten = 0
            raise

    async def _kept(self, live: LiveReplica) -> float:
        ttl_s = await self._store.keep_alive(self._lease) if self._lease else 0
        if ttl_s:
            if live != self._published:
                await self._publish_again(live)
            return float(ttl_s)
        # The first lease, or one after the old one ended. It counts only with the key that shows it to the others.
        self._lease, self._published = 0, None
        lease, ttl_s = await self._store.grant(LEASE_S)
        await self._publish(live, lease)
        self._lease = lease
        return float(ttl_s)

    async def _publish(self, live: LiveReplica, lease: int) -> None:
        put = PutKey(key=self._keys.live(live.id), value=encode_record(live), lease=lease)
        self._published_at = (await self._store.txn(Txn(success=(put,)))).revision
        self._published = live

    async def _publish_again(self, live: LiveReplica) -> None:
        """Publish under the lease that is shown already. A failure matters to nobody: the next call tries again."""
        try:
            await self._publish(live, self._lease)
        except LeaseMissingError:
            self._lease = 0
        except (CoordinationError, CoordinationRefusedError) as error:
            self._complain("a replica's position was not published", error)

    async def let_go(self) -> None:
        """Revoke the lease, so that the others need not wait for its end."""
        lease, self._lease, self._published = self._lease, 0, None
        if lease:
            try:
                await self._store.revoke(lease)
            except LeaseMissingError:
                _log.debug("the lease had ended already", group=self._group)

    # --- watching

    def watch(self, changed: Callable[[GroupView], None]) -> None:
        """Call back with a whole view whenever something changed, until `close`. A gap is closed by a new read."""
        self._changed = changed
        self._tasks.start(self._poll(), name=f"read group {self._group}")

    async def close(self) -> None:
        """Stop watching and close the connections. The lease is left to end by itself."""
        self._changed = None
        await self._tasks.close()
        await self._store.close()

    async def _poll(self) -> None:
        while True:
            try:
                revision, table = await self._read()
            except AerobeeError as error:
                self._complain("the coordination store does not answer", error)
                await asyncio.sleep(_PAUSE_S)
                continue
            if self._show(revision, table):
                # The watch had not told this. It is opened again, in case that it has lost its server.
                self._watch_again()
            await asyncio.sleep(_POLL_S)

    def _watch_again(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        self._watching = self._tasks.start(self._watch(), name=f"watch group {self._group}")

    async def _watch(self) -> None:
        while True:
            try:
                await self._store.watch(self._all, self._revision + 1, self._saw)
            except (CoordinationError, CoordinationRefusedError) as error:
                _log.debug("a watch ended and is opened again", group=self._group, reason=str(error))
            await asyncio.sleep(_PAUSE_S)
            try:
                self._show(*await self._read())
            except AerobeeError as error:
                _log.debug("the coordination store does not answer", group=self._group, reason=str(error))

    def _saw(self, batch: WatchBatch) -> None:
        """Take a batch of events. What a read has shown already is left out."""
        table = dict(self._table or {})
        for event in batch.events:
            if event.key.mod_revision > self._revision:
                if event.is_deletion:
                    table.pop(event.key.key, None)
                else:
                    table[event.key.key] = event.key
        self._show(batch.revision, table)

    def _show(self, revision: int, table: Mapping[bytes, KeyValue]) -> bool:
        """Tell a newer view. Return whether it differs from the last one."""
        if revision < self._revision or (revision == self._revision and self._table is not None):
            return False
        differs = table != self._table
        self._revision, self._table = revision, table
        if differs and self._changed is not None:
            self._look_for_a_twin(table)
            try:
                view = self._view(revision, table)
            except CoordinationError as error:
                self._complain("the group's state cannot be used", error)
            else:
                self._changed(view)
        return differs

    def _look_for_a_twin(self, table: Mapping[bytes, KeyValue]) -> None:
        """Publish again where the key is not ours any more: it ended with, or was overwritten under, a lease of ours
        whose answer was lost. Where that happens again and again, it is another process."""
        if self._published is None or self._revision <= self._published_at:
            return
        found = table.get(self._keys.live(self._published.id))
        if found is not None and (found.lease == self._lease or found.mod_revision <= self._published_at):
            return
        self._published = None
        if found is not None:
            self._overwritten += 1
            self._is_displaced = self._overwritten >= _OVERWRITTEN_MAX

    # --- reading

    async def _read(self) -> tuple[int, Mapping[bytes, KeyValue]]:
        """Read everything of the group. Raise CoordinationError also if the store went back in time."""
        least = self._revision
        revision, keys = await self._store.read(self._all)
        if revision < least:
            raise CoordinationError(
                f"the coordination store went back from revision {least} to {revision}",
                retriable=False,
                hint="It was emptied or restored from a backup. Restart the replicas when its content is right.",
            )
        return revision, {kv.key: kv for kv in keys}

    def _view(self, revision: int, table: Mapping[bytes, KeyValue]) -> GroupView:
        stored = table.get(self._keys.state)
        state = GroupState() if stored is None else decode_state(stored.key, stored.value, stored.mod_revision)
        live: dict[int, LiveReplica] = {}
        for key in sorted(key for key in table if self._keys.is_live(key)):
            try:
                one = decode_record(LiveReplica, key, table[key].value)
            except CoordinationError as error:
                self._complain("an entry of the group is ignored", error)
            else:
                live[one.id] = one
        return GroupView(state=state, members=self._members(table), live=live, revision=revision)

    def _members(self, table: Mapping[bytes, KeyValue]) -> dict[int, ReplicaMember]:
        members: dict[int, ReplicaMember] = {}
        for key in sorted(key for key in table if self._keys.is_member(key)):
            try:
                one = decode_record(ReplicaMember, key, table[key].value)
            except CoordinationError as error:
                self._complain("an entry of the group is ignored", error)
            else:
                members[one.id] = one
        return members

    def _complain(self, event: str, error: AerobeeError) -> None:
        self._warn.warning(event, event, group=self._group, reason=str(error))

    def _task_failed(self, name: str, error: BaseException) -> None:
        _log.error("a task of the coordination failed", group=self._group, task=name, error=repr(error))


def _number(kv: KeyValue | None) -> int:
    """Return the id that is given next."""
    if kv is None:
        return 1
    try:
        return max(1, parse_int(kv.value.decode()))
    except ValueError as error:
        raise CoordinationError(f"the coordination store holds {kv.key!r} without sense: {error}") from None
