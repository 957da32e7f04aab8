"""A replica of a group: the driver that joins store, coordinator, HA port and broker. It decides nothing itself."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from aerobee.errors import AerobeeError, CoordinationError, WithheldError
from aerobee.replication.coordinator import Coordinator
from aerobee.replication.duty import Duty
from aerobee.replication.feed import Feed
from aerobee.replication.frames import Ack, Hello
from aerobee.replication.greeting import hello_of, master_log_of, member_of
from aerobee.replication.identity import Prepared
from aerobee.replication.link import SILENT_MAX_S
from aerobee.replication.ownlog import OwnLog
from aerobee.replication.port import HaPort
from aerobee.replication.progress import Follower, ProgressLimits
from aerobee.replication.pursuit import Pursuit
from aerobee.replication.roles import (
    NOT_ENOUGH,
    Effect,
    Follow,
    Halt,
    Lead,
    Promote,
    Propose,
    ReplicaMachine,
    RoleSettings,
)
from aerobee.replication.settings import ReplicaSettings as ReplicaSettings
from aerobee.replication.status import status_of
from aerobee.replication.transfer import MasterLog
from aerobee.replication.values import GroupState, GroupView, LiveReplica, ReplicaRole, ReplicaStatus
from aerobee.runtime.seams import Clock, Disk, Entropy, Net
from aerobee.runtime.shortage import is_passing
from aerobee.runtime.tasks import Tasks
from aerobee.store.messagestore import MessageStore
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

_TICK_S: Final = 0.05
_JOIN_AGAIN_S: Final = 0.5
_KEEP_AGAIN_S: Final = 0.2
_NONCE_SIZE: Final = 16
# RocketMQ's codes for a put that too few replicas could take, and for a broker that does not serve now.
_CODE_NOT_ENOUGH: Final = 1
_CODE_BUSY: Final = 2
_log = get_log("replication")


class Replica:
    """One replica.

    Call `prepare` (identity.py), open the store with the `confirm_limit` that it returns, make the replica and start
    it. Stop it before the store is closed.
    """

    def __init__(  # noqa: PLR0913 - a driver is handed every seam
        self,
        settings: ReplicaSettings,
        prepared: Prepared,
        store: MessageStore,
        coordinator: Coordinator,
        disk: Disk,
        clock: Clock,
        entropy: Entropy,
        net: Net,
        *,
        duty: Duty,
        port: HaPort,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.secret = settings.secret
        self.frame_bytes = settings.frame_bytes
        self._prepared = prepared
        self._store = store
        self._coordinator = coordinator
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        self._duty = duty
        self._port = port
        self._warn = RateLimitedLog(_log, clock)
        self._own: OwnLog
        self.machine: ReplicaMachine
        self._tasks: Tasks | None = None
        self._feeds: dict[int, Feed] = {}
        self._pursuit = Pursuit(net, self, self._warn, tls)
        # False while the broker is built anew: the old store is left alone.
        self._is_attached = True
        self._awaits_attach: list[Effect] = []
        # What the disk had no room for.
        self._again: list[Effect] = []
        self._is_pump_due = False
        self._is_step_due = False
        self._fenced_s: float | None = None
        self._is_stopping = False
        self._is_done = False

    # ---- life

    async def start(self, tasks: Tasks) -> None:
        """Join the group and take part from now on. The HA port is started by its owner, before or after.

        This returns at once: a coordinator that cannot be reached is asked again and again.
        """
        self._own = own = OwnLog(self._store, self._prepared, self._disk, self._entropy)
        settings = self.settings
        self.machine = ReplicaMachine(
            RoleSettings(
                min_in_sync=settings.min_in_sync,
                learner=settings.learner,
                sync_flush=self._store.config.sync_flush,
                lease_margin_s=settings.lease_margin_s,
                promise_s=settings.promise_s,
                switch_max_s=settings.switch_max_s,
                limits=ProgressLimits(
                    silent_max_s=settings.silent_max_s,
                    lag_max_s=settings.lag_max_s,
                    echo_s=settings.promise_s - settings.promise_margin_s,
                ),
            ),
            number=own.identity.id,
            incarnation=own.identity.incarnation,
            epoch=own.identity.epoch,
            has_log=own.end > own.start,
            now_s=self.now(),
            start=settings.start_id,
        )
        if own.renewed:
            _log.warning("the replica has a new incarnation", group=settings.group, reason=own.renewed)
        self._bind()
        self._port.ours = lambda: Feed(self)
        self._tasks = tasks
        tasks.start(self._take_part(tasks), name="replica joins")
        tasks.start(self._pursuit.run(), name="replica follows")
        tasks.start(self._tick(), name="replica ticks")

    def _bind(self) -> None:
        store = self._own.store
        store.confirmer = self._stored
        store.set_confirm_limit(self._own.confirmed)
        self._withhold()

    async def _take_part(self, tasks: Tasks) -> None:
        while not self._is_done:
            try:
                joined = await self._coordinator.join(member_of(self.settings, self._own), self._own.identity.starts)
                self._own.joined(joined.id)
                break
            except (AerobeeError, OSError) as error:
                if isinstance(error, CoordinationError) and not error.retriable:
                    self._apply(self.machine.halt(str(error)))
                    return
                self._warn.warning("join", "the group cannot be joined now", reason=str(error))
                await asyncio.sleep(_JOIN_AGAIN_S)
        if self._is_done:
            return
        self.machine.id = joined.id
        self._coordinator.watch(self._viewed)
        tasks.start(self._keep(), name="replica keeps its lease")

    async def stop(self) -> None:
        """Leave in an orderly way: a master first hands over or resigns, a follower says that it goes."""
        if self._tasks is None or self._is_done:
            return
        self._is_stopping = True
        # A master that hands over now is not built anew: its store stays ours.
        is_ours = self._is_attached
        if self.machine.is_leading and not self.machine.halted:
            await self._leave_office()
        self._is_done = True
        self._pursuit.leave("leaving", "it stops")
        for feed in list(self._feeds.values()):
            feed.say_goodbye("leaving", "the master stops")
        self._port.ours = None
        self._withhold()
        if is_ours:
            self._settle()
        try:
            await self._coordinator.let_go()
        except AerobeeError as error:
            _log.warning("the lease is left to end by itself", reason=str(error))
        await self._coordinator.close()

    def abandon(self) -> None:
        """Cut the connections to the other replicas, as the end of a process does. Nobody is told why."""
        self._pursuit.follow(None)
        while self._feeds:
            self._feeds.popitem()[1].close()

    async def _leave_office(self) -> None:
        until_s = self.now() + self.settings.stop_max_s
        successor = self.machine.best_successor()
        if successor is not None and not self.machine.switch_to(successor, self.now()):
            self._step()
            await self._until(lambda: not self.machine.is_switching or not self.machine.is_leading, until_s)
        if self.machine.is_leading:
            self.machine.leave("it stops")
            self._step()
            await self._until(lambda: self.machine.has_left, until_s)

    async def _until(self, is_true: Callable[[], bool], until_s: float) -> None:
        while not is_true() and self.now() < until_s:
            await asyncio.sleep(_TICK_S / 5)
            self._step()

    def _settle(self) -> None:
        """Sync the log and note an orderly stop, so that the next start trusts it."""
        store = self._own.store
        try:
            if store.is_open and store.fenced is None:
                store.sync_now()
                self._own.close()
        except (AerobeeError, OSError) as error:
            _log.warning("the log could not be synced at the stop of the replica", reason=str(error))

    def attach(self, store: MessageStore) -> None:
        """Go on with another store of the same directory, opened with `confirm_limit` as the confirm limit."""
        self._store = self._own.store = store
        self._is_attached = True
        self._bind()
        effects, self._awaits_attach = self._awaits_attach, []
        self._apply(effects)
        self._pursuit.go_on()

    @property
    def confirm_limit(self) -> int:
        """Return how far the log is known to be confirmed."""
        return self._own.confirmed

    # ---- what others ask

    def status(self) -> ReplicaStatus:
        return status_of(self.settings.group, self.machine, self._own, self.now())

    def has_authority(self) -> bool:
        """Tell whether this replica leads and no other can have been elected. Ask before every side effect."""
        return self.machine.has_authority(self._clock.monotonic())

    async def switch_to(self, target: int) -> None:
        """Hand the role of master to another member of the in-sync set. Raise WithheldError if that cannot be done."""
        why = self.machine.switch_to(target, self.now())
        if why:
            raise WithheldError(f"the role of master cannot go to replica {target}: {why}")
        self._step()
        until_s = self.now() + self.settings.switch_max_s + self.settings.stop_max_s
        await self._until(lambda: not self.machine.is_switching, until_s)
        if self.machine.is_leading:
            raise WithheldError(f"the role of master did not go to replica {target}: it was not level in time")

    # ---- time and effects

    def now(self) -> float:
        return self._clock.monotonic()

    def nonce(self) -> str:
        return self._entropy.token(_NONCE_SIZE).hex()

    async def _tick(self) -> None:
        while not self._is_done:
            await asyncio.sleep(_TICK_S)
            self._step()
            self._beat()

    def _step(self) -> None:
        """Do what is due now."""
        if self._is_done or not self._is_attached:
            return
        self._look_for_fence()
        again, self._again = self._again, []
        self._apply(again)
        self._confirm()
        self._apply(self.machine.tick(self.now(), self._own.store.dispatched_offset))
        self._withhold()

    def _step_soon(self) -> None:
        if not self._is_step_due and not self._is_done:
            self._is_step_due = True
            asyncio.get_running_loop().call_soon(self._step_now)

    def _step_now(self) -> None:
        self._is_step_due = False
        self._step()

    def _beat(self) -> None:
        """Tell the followers that the master is there, and close the connections of those that say nothing."""
        now_s, confirmed = self.now(), self._own.confirmed
        progress = self.machine.progress
        for feed in list(self._feeds.values()):
            follower = None if progress is None else progress.followers.get(feed.follower_id)
            if follower is not None and now_s - follower.heard_s > SILENT_MAX_S:
                feed.close()
            elif feed.told_confirmed < confirmed or now_s - feed.sent_s >= self.settings.heartbeat_s:
                feed.heartbeat()

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Propose():
                    self._propose(effect)
                case Promote() | Follow() if not self._is_attached:
                    self._awaits_attach = [effect]
                case Promote():
                    self._again = []
                    self._promote(effect.state)
                case Lead():
                    _log.info("the replica leads", group=self.settings.group, epoch=effect.epoch, log_end=self._own.end)
                    self._duty.lead(effect.epoch)
                    self._withhold()
                case Follow():
                    self._again = []
                    self._follow(effect)
                case Halt():
                    self._halt(effect.reason)

    def _propose(self, proposal: Propose) -> None:
        new = proposal.new
        _log.info(
            "a change of the group is proposed",
            group=self.settings.group,
            reason=proposal.why,
            epoch=new.epoch,
            master=new.master,
            in_sync=sorted(new.in_sync),
        )
        assert self._tasks is not None
        self._tasks.start(self._ask(proposal), name="replica proposes")

    async def _ask(self, proposal: Propose) -> None:
        outcome = await self._coordinator.replace(proposal.seen, proposal.new)
        try:
            self._viewed(await self._coordinator.view())
        except AerobeeError as error:
            self._warn.warning("view", "the group's state cannot be read now", reason=str(error))
        self.machine.answered(outcome, self.now())
        self._step_soon()

    def _promote(self, state: GroupState) -> None:
        self._pursuit.follow(None)
        try:
            self._own.begin_epoch(state.epoch)
        except (AerobeeError, OSError, ValueError) as error:
            self._could_not_note(Promote(state=state), state.epoch, error)
            return
        own = self._own
        self.machine.promoted(own.end, own.end, own.confirmed, own.stored, self.now())
        _log.info(
            "the replica was elected",
            group=self.settings.group,
            epoch=state.epoch,
            log_end=own.end,
            confirmed=own.confirmed,
            in_sync=sorted(state.in_sync),
        )
        self._step_soon()

    def _follow(self, effect: Follow) -> None:
        self._pursuit.follow(None)
        for feed in list(self._feeds.values()):
            feed.say_goodbye("not master", effect.why)
        self._feeds.clear()
        self._withhold()
        if effect.was_leading:
            self._own.store.waiters.fail(WithheldError("another replica became master", code=_CODE_BUSY))
        try:
            self._own.see(effect.epoch)
        except (AerobeeError, OSError) as error:
            self._could_not_note(effect, effect.epoch, error)
            return
        _log.info(
            "the replica follows" if effect.master is not None else "the replica waits",
            group=self.settings.group,
            epoch=effect.epoch,
            reason=effect.why,
        )
        self._is_attached = self._duty.follow(effect.epoch, effect.master) or not effect.was_leading
        if effect.master is not None:
            self._pursuit.follow((effect.epoch, effect.master))

    def _could_not_note(self, effect: Effect, epoch: int, error: AerobeeError | OSError | ValueError) -> None:
        """Try again later where the disk is only full. Nothing of an epoch happens before it is noted."""
        if isinstance(error, AerobeeError | OSError) and is_passing(error):
            self._warn.warning("note", "a new epoch cannot be noted now", epoch=epoch, reason=str(error))
            self._again = [effect]
        else:
            self._apply(self.machine.halt(f"epoch {epoch} cannot be noted: {error}"))

    def _halt(self, reason: str) -> None:
        _log.error("the replica cannot go on and stops", group=self.settings.group, reason=reason)
        self._pursuit.follow(None)
        self._withhold()
        self._duty.stop(reason)

    def _look_for_fence(self) -> None:
        fenced = self._own.store.fenced
        if fenced is None or self.machine.halted:
            return
        if self._fenced_s is None:
            self._fenced_s = self.now()
            try:
                self._own.doubt()
            except (AerobeeError, OSError) as error:
                _log.warning("the doubt about the log could not be noted", reason=str(error))
            self.machine.leave(fenced.message, failed=True)
            self._pursuit.leave("failed", fenced.message[:200])
        if self.machine.has_left or self.now() - self._fenced_s > self.settings.switch_max_s:
            self._apply(self.machine.halt(fenced.message))

    def _withhold(self) -> None:
        """Let the store refuse messages where the group does not allow them, or accept them again."""
        store = self._own.store
        why = "the replica stops" if self._is_done else self.machine.refusal(self.now())
        if not why:
            if store.withheld is not None:
                store.withhold(None)
        elif store.withheld is None or store.withheld.message != why:
            code = _CODE_NOT_ENOUGH if why == NOT_ENOUGH else _CODE_BUSY
            store.withhold(WithheldError(why, code=code))

    # ---- the coordinator

    def _viewed(self, view: GroupView) -> None:
        if self._is_done:
            return
        before = self.machine.state
        self._apply(self.machine.viewed(view, self.now()))
        after = self.machine.state
        if before.in_sync != after.in_sync or before.eligible != after.eligible:
            _log.info(
                "the in-sync set has changed",
                group=self.settings.group,
                epoch=after.epoch,
                in_sync=sorted(after.in_sync),
                eligible=sorted(after.eligible),
            )
        if before.forced != after.forced and after.forced:
            _log.warning("an operator forced the group's state", group=self.settings.group, reason=after.forced)
        self._step_soon()

    async def _keep(self) -> None:
        while not self._is_done and not self.machine.halted:
            sent_s = self.now()
            identity = self._own.identity
            live = LiveReplica(
                id=identity.id, incarnation=identity.incarnation, epoch=self.machine.epoch, log_end=self._own.end
            )
            try:
                ttl_s = await self._coordinator.keep(live)
                if self.now() > self.machine.lease_deadline_s:
                    # The lease may have ended meanwhile: only a view tells whether another was elected.
                    self._viewed(await self._coordinator.view())
            except AerobeeError as error:
                if isinstance(error, CoordinationError) and not error.retriable:
                    self._apply(self.machine.halt(str(error)))
                    return
                self._warn.warning("keep", "the lease cannot be kept now", reason=str(error))
                await asyncio.sleep(_KEEP_AGAIN_S)
                continue
            self.machine.kept(sent_s, ttl_s)
            self._step_soon()
            await asyncio.sleep(self.settings.keep_interval_s)

    # ---- the store

    def _stored(self, local: int) -> int:
        """Take how far this machine has stored the log. Return how far it may be seen."""
        progress = self.machine.progress
        if progress is None:
            self._pursuit.ack_soon()
            return self._own.confirmed
        progress.stored, progress.end = local, self._own.end
        confirmed = self.machine.confirm(self._clock.monotonic())
        if confirmed is not None and confirmed > self._own.confirmed:
            self._own.confirmed = confirmed
        if self._feeds and not self._is_pump_due:
            self._is_pump_due = True
            asyncio.get_running_loop().call_soon(self._pump)
        return self._own.confirmed

    def _pump(self) -> None:
        self._is_pump_due = False
        for feed in list(self._feeds.values()):
            feed.pump()

    def _confirm(self) -> None:
        """Show what is confirmed now."""
        confirmed = self.machine.confirm(self.now())
        if confirmed is not None:
            self._own.confirm(confirmed)

    # ---- the master's side

    def own_log(self) -> OwnLog:
        return self._own

    def master_log(self) -> tuple[MasterLog, GroupView] | None:
        """Return what this replica tells followers of itself, None where it leads no epoch."""
        machine, own = self.machine, self._own
        if machine.progress is None or machine.view is None or self._is_done or not self._is_attached:
            return None
        log = master_log_of(self.settings, own, machine.id, machine.progress.state.epoch)
        return log, machine.view

    def begun(self, feed: Feed, follower: Follower) -> None:
        """Take a follower's handshake. An older connection of the same replica is closed."""
        older = self._feeds.pop(follower.id, None)
        if older is not None:
            older.close()
        self._feeds[follower.id] = feed
        if self.machine.progress is not None:
            self.machine.progress.begin(follower, self.now())
        _log.info(
            "a follower is connected",
            replica=follower.id,
            address=follower.address,
            stored=follower.stored,
            log_end=self._own.end,
        )
        self._step_soon()

    def acked(self, feed: Feed, ack: Ack) -> str:
        """Take an acknowledgement. Return why it cannot be true, or ""."""
        progress = self.machine.progress
        if progress is None or self._feeds.get(feed.follower_id) is not feed:
            return "its connection is over"
        echoed_s = ack.stamp / 1_000_000 if ack.stamp else None
        now_s = self.now()
        if echoed_s is not None and echoed_s > now_s:
            return "it echoes a stamp that was never sent"
        why = progress.acked(feed.follower_id, ack.written, ack.stored, echoed_s, now_s)
        if not why:
            self._confirm()
            if self.machine.role is not ReplicaRole.LEADER or self.machine.is_switching:
                self._step_soon()
        return why

    def left(self, feed: Feed, leaving: str) -> None:
        """Take the end of a follower's connection."""
        if self._feeds.get(feed.follower_id) is not feed:
            return
        del self._feeds[feed.follower_id]
        _log.info("a follower is gone", replica=feed.follower_id, reason=leaving or "its connection ended")
        if self.machine.progress is not None:
            self.machine.progress.lost(feed.follower_id, self.now(), leaving)
            self._step_soon()

    # ---- the follower's side

    def linked(self) -> None:
        self.machine.master_lives()

    def promises(self) -> bool:
        if self.machine.is_standing:
            return False
        self.machine.acknowledged(self.now())
        return True

    def cannot_follow(self, reason: str) -> None:
        self._apply(self.machine.halt(f"{reason}. Keep the directory for a look, and start with an empty one"))

    def store_failed(self, error: AerobeeError | OSError) -> None:
        self._warn.warning("store", "the store did not take what the master sent", reason=str(error))
        self._step_soon()

    def can_follow(self) -> bool:
        return self._is_attached and not self._is_done

    def master_died(self, epoch: int) -> None:
        self.machine.master_died(epoch)
        self._step_soon()

    def hello(self) -> Hello:
        return hello_of(self.settings, self._own, self.nonce())
