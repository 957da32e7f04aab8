"""The one place where requests are checked: around the tables of handlers that a server serves.

`Guard.handlers` returns a table that looks like the one it is given. Each handler in it authenticates the request,
finds its row, and calls the handler behind it only if the user may. A code that nobody serves is refused after the
user is known. A server without access control keeps its own tables, so nothing here costs it anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from aerobee.access.audit import Audit
from aerobee.access.door import Access
from aerobee.access.gate import PassBook, PullGate, SendGate
from aerobee.access.listings import whole_list, without_hidden
from aerobee.access.owners import QueryOwners
from aerobee.access.penalties import Penalties
from aerobee.access.policies import Action, ResourceKind
from aerobee.access.refusal import AccessRefusedError
from aerobee.access.rows import PUB, AccessRow, AccessWorld, Need, topic
from aerobee.access.users import User
from aerobee.errors import AerobeeError
from aerobee.hot.wire.frame import Frame, scan_frames
from aerobee.net.channel import Channel
from aerobee.net.server import Answer, FastHandler, Handler
from aerobee.net.turns import Sliced, Slices
from aerobee.protocol.codes import FOR_SOURCE_FIELD, FOR_USER_FIELD, RequestCode, ResponseCode
from aerobee.protocol.command import Command, decode_command, encode_command, response
from aerobee.protocol.signing import ACCESS_KEY
from aerobee.runtime.bases import Clock

# RocketMQ: AuthConfig.statefulAuthenticationCacheExpiredSecond.
_TRUST_S: Final = 60.0
_TRUSTED_MAX: Final = 10_000
_NAME_MAX: Final = 255
_SENDS: Final = frozenset((RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE))
_PULLS: Final = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))
_REMARK_MAX: Final = 300


class Guard:
    """Checks the requests of one server. `rows` is its table; `world` knows what the rows ask about."""

    def __init__(
        self,
        access: Access,
        rows: Mapping[int, AccessRow],
        world: AccessWorld,
        audit: Audit,
        clock: Clock,
        owners: QueryOwners | None = None,
    ) -> None:
        self.access = access
        self._rows = rows
        self._world = world
        self._audit = audit
        self._penalties = Penalties(clock)
        self._clock = clock
        config = access.config
        self._open = frozenset(config.open_codes())
        self._free = frozenset(config.free_codes())
        # How many sends and pulls took the general way.
        self.slow_frames = 0
        # What the short way lets pass; void as soon as users or rights change.
        self._book = PassBook()
        access.on_changed.append(self._book.clear)
        # By connection and user, where a user is trusted for a time: the epoch and until when.
        self._trusted: dict[tuple[int, str], tuple[int, float]] = {}
        self._owners = owners or QueryOwners()
        # By connection of a gRPC front: the user whose client it serves, and where that client is.
        self._fronted: dict[int, tuple[str, str]] = {}

    @staticmethod
    def empty_table(guard: Callable[[], Guard | None]) -> dict[int, Handler]:
        """Return an empty table for a server: it has an answer for every code."""
        return GuardedTable(guard)

    def look_at(self, world: AccessWorld) -> None:
        """Ask this world from now on."""
        self._world = world

    def handlers(self, served: Mapping[int, Handler]) -> dict[int, Handler]:
        """Return what to serve in place of `served`."""
        return {code: self.around(code, handler) for code, handler in served.items()}

    def fast(self, served: Mapping[int, FastHandler]) -> dict[int, FastHandler]:
        """Return what to serve in place of handlers that decode frames themselves."""
        return {code: self.around_frames(code, handler) for code, handler in served.items()}

    def around_frames(self, code: int, handler: FastHandler) -> FastHandler:
        """Return a handler that checks a frame before it passes it on.

        What is passed on is written anew from the fields that were checked. So no other way of reading the frame can
        find others in it.
        """
        if code in self._open:
            return handler
        row = self._rows.get(code)

        def guarded(channel: Channel, frame: Frame) -> None:
            self.slow_frames += 1
            command = decode_command(frame)
            frame.opaque, frame.flag = command.opaque, command.flag
            try:
                user, source = self.login(channel, command)
                if row is None or row.needs is None:
                    raise self._no_row(user, source, code)
                if code not in self._free:
                    needs = row.needs(command, self._world)
                    assert isinstance(needs, list)
                    self.access.authorize(user, needs, source, code)
            except AccessRefusedError as error:
                if not command.is_oneway:
                    channel.send(self._refusal(command, error))
                return
            self._learn(code, command, user, source)
            handler(channel, scan_frames(encode_command(command))[0][0])

        if code in _SENDS:
            return SendGate(self._book, handler, guarded, code != RequestCode.SEND_MESSAGE).on_frame
        return PullGate(self._book, handler, guarded).on_frame if code in _PULLS else guarded

    def _learn(self, code: int, command: Command, user: User, source: str) -> None:
        """Let the short way pass what was allowed now. Names are taken from the fields that were checked."""
        ext = command.ext
        if code in _SENDS:
            topic = ext.get("topic" if code == RequestCode.SEND_MESSAGE else "b", "")
            if 0 < len(topic) <= _NAME_MAX:
                self._book.allow_send(user.name, user.password, source, topic)
        elif code in _PULLS:
            topic, group = ext.get("topic", ""), ext.get("consumerGroup", "")
            if 0 < len(topic) <= _NAME_MAX and 0 < len(group) <= _NAME_MAX:
                self._book.allow_pull(user.name, user.password, source, topic, group)

    def around(self, code: int, handler: Handler) -> Handler:
        """Return a handler that checks a request before it passes it on."""
        if code in self._open:
            return handler
        row = self._rows.get(code)

        def guarded(channel: Channel, command: Command) -> Answer:
            try:
                user, source = self.login(channel, command)
                if row is None:
                    return self._refusal(command, self._no_row(user, source, code))
                return self._authorized(channel, command, user, source, row, handler)
            except AccessRefusedError as error:
                return self._refusal(command, error)

        return guarded

    def unknown(self, channel: Channel, command: Command) -> Answer:
        """Answer a code that nobody serves, to users only."""
        try:
            self.login(channel, command)
        except AccessRefusedError as error:
            return self._refusal(command, error)
        # RocketMQ: NettyRemotingAbstract.processRequestCommand
        remark = f" request type {command.code} not supported"
        return response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)

    @staticmethod
    def _refusal(command: Command, error: AccessRefusedError) -> Command:
        return response(command, error.code or ResponseCode.NO_PERMISSION, remark=error.message)

    # -- who

    def login(self, channel: Channel, command: Command) -> tuple[User, str]:
        """Return the user whose request it is, and where it came from. Raise AccessRefusedError.

        That is the user who signed it; or, where a Super user signed for somebody, as a gRPC front does, that user,
        at the address that the front tells.
        """
        user, source = self._signer(channel, command)
        if FOR_USER_FIELD in command.ext and not user.is_super:
            # Whoever reads the field behind this place may believe it.
            del command.ext[FOR_USER_FIELD]
        elif FOR_USER_FIELD in command.ext:
            source = command.ext.get(FOR_SOURCE_FIELD, source)[:_NAME_MAX]
            user = self.access.known(command.ext[FOR_USER_FIELD], source, command.code)
            if command.code == RequestCode.HEART_BEAT:
                self._fronted[channel.id] = user.name, source
        return user, source

    def may_publish(self, channel: Channel, name: str) -> bool:
        """Return whether whoever said on a connection who he is may send to a topic."""
        user_name, source = self._fronted.get(channel.id, (channel.user, channel.source))
        user = self.access.tables.users.get(user_name)
        needs = [topic(self._world, name, PUB)]
        return user is not None and user.is_enabled and self.access.verdict(user, needs, source).allowed

    def forget(self, channel: Channel) -> None:
        """Note that a connection ended."""
        self._fronted.pop(channel.id, None)
        self._audit.forget(channel.id)

    def _signer(self, channel: Channel, command: Command) -> tuple[User, str]:
        source = channel.source
        if self.access.config.is_stateful and channel.is_secure:
            trusted = self._trusted_user(channel, command)
            if trusted is not None:
                return trusted, source
        try:
            user = self.access.authenticate(command.ext, command.body, command.version, source, command.code)
        except AccessRefusedError:
            self._penalties.failed(channel, source)
            raise
        channel.user = user.name
        self._audit.seen(channel.id, user.name, source)
        if self.access.config.is_stateful and channel.is_secure:
            if len(self._trusted) >= _TRUSTED_MAX:
                self._trusted.clear()
            self._trusted[channel.id, user.name] = self.access.epoch, self._clock.monotonic() + _TRUST_S
        return user, source

    def _trusted_user(self, channel: Channel, command: Command) -> User | None:
        """Return the user who has signed well on this TLS connection a short while ago and was not changed since."""
        name = command.ext.get(ACCESS_KEY, "")
        epoch, until_s = self._trusted.get((channel.id, name), (-1, 0.0))
        if epoch != self.access.epoch or self._clock.monotonic() >= until_s:
            return None
        return self.access.tables.users.get(name)

    def _no_row(self, user: User, source: str, code: int) -> AccessRefusedError:
        self._audit.broken_row(user, source, code)
        return AccessRefusedError(f"request {code} has no row in the table of rights, so nobody may send it")

    # -- may they

    def _authorized(
        self, channel: Channel, command: Command, user: User, source: str, row: AccessRow, handler: Handler
    ) -> Answer:
        if command.code in self._free:
            return handler(channel, command)
        if row.super_only:
            self.access.require_super(user, source, command.code)
        if row.own_queries:
            self._refuse_anothers(user, source, command)
        is_own = row.own and command.ext.get(row.own, "") == (user.subject if row.own == "subject" else user.name)
        needs = row.needs(command, self._world) if row.needs is not None and not is_own else []
        if not isinstance(needs, list):
            slowly = needs

            def slices() -> Slices:
                try:
                    found = yield from slowly
                    self.access.authorize(user, found, source, command.code)
                    answer = self._passed(channel, command, user, source, row, handler)
                except AccessRefusedError as error:
                    return self._refusal(command, error)
                return (yield from answer.slices) if isinstance(answer, Sliced) else answer

            # Half of what is begun here may be wrong: it goes on if its connection ends.
            return Sliced(slices(), whole=True)
        self.access.authorize(user, needs, source, command.code)
        if row.own_queries:
            # A query without rows names no topic. Who may publish nowhere has no batches at all.
            if not needs:
                self.access.require_any(user, ResourceKind.TOPIC, Action.PUB, source, command.code)
            self._own_query(user, command)
        return self._passed(channel, command, user, source, row, handler)

    def _passed(
        self, channel: Channel, command: Command, user: User, source: str, row: AccessRow, handler: Handler
    ) -> Answer:
        """Do what comes after the needs of the fields are met: look the message up, filter, tell the audit log."""
        if row.place is not None and not user.is_super:
            self._look_up(channel, command, user, source, row, handler)
            return None
        return self._served(channel, command, user, source, row, handler)

    def _served(
        self, channel: Channel, command: Command, user: User, source: str, row: AccessRow, handler: Handler
    ) -> Answer:
        if row.changes:
            return self._changing(channel, command, user, source, handler)
        if row.shows_bodies:
            self._audit.done(user, source, command.code, resource=command.ext.get("topic", ""))
        answer = handler(channel, command)
        if row.filtered and not self._sees_all(user, source):
            return self._filtered(command, answer, user, source)
        return answer

    def _changing(self, channel: Channel, command: Command, user: User, source: str, handler: Handler) -> Answer:
        """Let the handler change something, and tell the audit log what was there before and after."""
        before = self._world.described(command)
        answer = handler(channel, command)

        def told(found: Command | None) -> None:
            after = self._world.described(command)
            if found is not None and found.code:
                after = {"failed": found.code, "remark": (found.remark or "")[:_REMARK_MAX]}
            self._audit.done(user, source, command.code, before=before, after=after)

        if not isinstance(answer, Sliced):
            told(answer)
            return answer
        sliced = answer

        def slices() -> Slices:
            found = yield from sliced.slices
            told(found)
            return found

        return Sliced(slices(), whole=sliced.whole)

    def _sees_all(self, user: User, source: str) -> bool:
        return self.access.verdict(user, [whole_list(self._world)], source).allowed

    def _filtered(self, command: Command, answer: Answer, user: User, source: str) -> Answer:
        def may(need: Need) -> bool:
            return self.access.verdict(user, [need], source).allowed

        def slices() -> Slices:
            found = (yield from answer.slices) if isinstance(answer, Sliced) else answer
            return None if found is None else (yield from without_hidden(command.code, found, may))

        return Sliced(slices())

    # -- messages that a request names by their place

    def _look_up(
        self, channel: Channel, command: Command, user: User, source: str, row: AccessRow, handler: Handler
    ) -> None:
        """Find the topic of the message first. One that is not there is not looked for again: it could have come
        meanwhile."""
        assert row.place is not None
        offset = row.place(command)

        def told(topic: str | None) -> None:
            answer: Answer
            try:
                if topic is None:
                    remark = f"can not find message by the offset, {offset}"
                    answer = response(command, ResponseCode.SYSTEM_ERROR, remark=remark)
                else:
                    assert row.of_message is not None
                    self.access.authorize(user, row.of_message(command, self._world, topic), source, command.code)
                    answer = self._served(channel, command, user, source, row, handler)
            except AerobeeError as error:
                answer = response(command, error.code or ResponseCode.SYSTEM_ERROR, remark=error.message)
            if channel.closed:
                return
            if isinstance(answer, Sliced):
                channel.work(command, answer)
            elif answer is not None and not command.is_oneway:
                channel.send(answer)

        self._world.topic_at(offset, told)

    # -- batches

    def _owner(self, command: Command) -> str | None:
        owner = self._owners.get(command.ext.get("queryId", ""))
        return owner if owner in self.access.tables.users else None

    def _own_query(self, user: User, command: Command) -> None:
        """Note whose query this is, once it is known that the user may send rows of it."""
        if self._owner(command) is None and not user.is_super:
            self._owners.put(command.ext.get("queryId", ""), user.name)

    def _refuse_anothers(self, user: User, source: str, command: Command) -> None:
        """Refuse what concerns the batches of another user's query."""
        query, owner = command.ext.get("queryId", ""), self._owner(command)
        if owner is not None and owner != user.name and not user.is_super:
            raise AccessRefusedError(
                f"{user.subject} has no permission to access the batches of query {query[:100]} from {source}: they "
                "are another user's"
            )


class GuardedTable(dict[int, Handler]):
    """A table that has an answer for every code: those that nobody serves need a user, too."""

    def __init__(self, guard: Callable[[], Guard | None]) -> None:
        super().__init__()
        self._guard = guard

    def get(self, code: int, default: object = None) -> Handler | None:  # type: ignore[override]
        """Return the handler of a code."""
        found: Handler | None = super().get(code)
        if found is not None:
            return found
        guard = self._guard()
        return None if guard is None else guard.unknown
