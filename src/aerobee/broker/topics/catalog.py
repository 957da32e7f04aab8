"""The catalog of topics and groups. They are made by rule, saved after every change, and told to the name servers.

What an administrator makes is answered when it is saved (`when_saved`), and so is a send whose topic is not saved yet
(`unsaved`). Where saving fails, its answer says that the message is stored and not yet safe. In a group of replicas its
journal has the topic first (`on_topic_put`). Topics found in the log and missing from the table are made again at start
(`adopt`): nobody was told that they are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from aerobee.broker.log import topic_refusal
from aerobee.broker.refusal import Refusal
from aerobee.broker.topics.attributes import REFUSED_VALUES
from aerobee.broker.topics.groups import GroupRules, is_forbidden, system_groups
from aerobee.broker.topics.rules import READ_WRITE, TopicRules
from aerobee.errors import InvalidArgumentError, StoreError
from aerobee.hot.wire.send import SendFields
from aerobee.model.dataversion import DataVersion
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.names import topic_problem
from aerobee.model.topic import GENERATION, QUEUE_NUMS_MAX, TopicConfig
from aerobee.protocol.codes import ResponseCode
from aerobee.runtime.seams import Clock
from aerobee.store.metadata.groups import GroupTable
from aerobee.store.metadata.topics import TopicTable
from aerobee.telemetry.stdlog import RateLimitedLog, get_log

_log = get_log("broker.topics")

Saved = Callable[[StoreError | None], None]


class Catalog:
    """Topics and groups, with the rules that make and change them."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        topic_rules: TopicRules,
        group_rules: GroupRules,
        clock: Clock,
    ) -> None:
        self.topic_table = topics
        # Called for each send, so it is the table's method itself.
        self.find = topics.get
        self.group_table = groups
        self.topic_rules = topic_rules
        self.group_rules = group_rules
        # Called with the topics that changed; the registrar tells the name servers.
        self.on_topics_changed: Callable[[list[TopicConfig]], None] = lambda changed: None
        # Calls back when the name servers know the topics made so far. The registrar sets it.
        self.when_registered: Callable[[Callable[[], None]], None] = lambda done: done()
        # Calls back when the group's replicas have everything changed so far. Its journal sets it.
        self.confirm: Callable[[Saved], None] = lambda done: done(None)
        # Whether there are no replicas to wait for.
        self.is_alone = True
        # Called with a topic that was made or changed, before anything can be stored under it.
        self.on_topic_put: Callable[[TopicConfig], None] = lambda config: None
        # Topics that were made or changed and are not on disk, with the count of the table's changes then. Empty where
        # replicas have them in their journal.
        self.unsaved: dict[bytes, int] = {}
        # Called with a topic that a send has made.
        self.on_topic_made: Callable[[TopicConfig], None] = lambda made: None
        self._clock = clock
        self._warn = RateLimitedLog(_log, clock)
        self._dirty = False
        self._saving = False
        # What the files hold; None where that is not known.
        self._topics_saved: DataVersion | None = None
        self._groups_saved: DataVersion | None = None
        self._waiting: list[Saved] = []
        self._last_generation = 0

    def journal_by(self, put: Callable[[TopicConfig], None], confirm: Callable[[Saved], None]) -> None:
        """Let a group's journal hold what changes, besides the files."""
        self.is_alone, self.on_topic_put, self.confirm = False, put, confirm

    def load(self) -> None:
        """Load what was saved, and add what every broker has."""
        now_ms = self._clock.now_ms()
        self.topic_table.load(now_ms)
        self.group_table.load(now_ms)
        for name, config in self.topic_table.topics.items():
            for (attribute, value), reason in REFUSED_VALUES.items():
                if config.attributes.get(attribute) == value:
                    _log.warning(f"{attribute}={value} has no effect: {reason}", topic=name)
        self.add_system_entries()

    def add_system_entries(self) -> None:
        """Add the topics and groups that every broker has."""
        now_ms = self._clock.now_ms()
        for topic in self.topic_rules.system_topics():
            if self.topic_table.get(topic.topic_name) is None:
                self.topic_table.put(topic, now_ms)
        for group in system_groups():
            if self.group_table.get(group.group_name) is None:
                self.group_table.put(group, now_ms)
        self._dirty = True

    def adopt(self, found: Iterable[tuple[bytes, int]]) -> list[str]:
        """Make topics that have records but no entry; `found` is (topic, queue id) of each queue. Return the names."""
        queues: dict[str, int] = {}
        for name, queue_id in found:
            topic = name.decode("utf-8", "replace")
            # A record may name any queue: a topic still gets no more than it may have.
            queues[topic] = max(queues.get(topic, 0), min(queue_id + 1, QUEUE_NUMS_MAX))
        missing = [t for t in queues if self.topic_table.get(t) is None and topic_problem(t) is None]
        for topic in missing:
            nums = queues[topic]
            if not topic.startswith("%") and not self.topic_rules.is_system(topic):
                # A send made it, and the broker was killed before it was saved: its producers know all of its queues.
                nums = max(nums, self.topic_rules.default_queue_nums)
            # It is as old as its records, so it gets no new generation.
            self._replace(TopicConfig(topic, nums, nums, READ_WRITE))
        return missing

    # -- topics

    def check_send(self, topic: str) -> Refusal | None:
        """Return why nobody may send to a topic of that name now."""
        return self.topic_rules.check_send(topic)

    def for_send(self, fields: SendFields, producer: str = "") -> TopicConfig | Refusal:
        """Return the topic of a send, made if the rules allow. RocketMQ: AbstractSendMessageProcessor.msgCheck."""
        refusal = self.topic_rules.check_send(fields.topic)
        if refusal is not None:
            return refusal
        config = self.topic_table.get(fields.topic)
        if config is not None:
            return topic_refusal(config, fields.queue_id, producer) or config
        made = self.topic_rules.create_for_send(
            fields.topic,
            self.topic_table.topics,
            default_topic=fields.default_topic,
            queue_nums=fields.default_topic_queue_nums,
            unit_mode=fields.unit_mode,
        )
        if isinstance(made, Refusal):
            return made
        # A send that is refused leaves no topic behind.
        refusal = topic_refusal(made, fields.queue_id, producer) or self._room_refusal(fields.topic)
        if refusal is not None:
            return refusal
        self.put_topic(made)
        self.on_topic_made(made)
        return made

    def put_topic(self, config: TopicConfig) -> bool:
        """Create or replace; whether that changed anything. Raise where there are too many for one more."""
        refusal = self._room_refusal(config.topic_name)
        if refusal is not None:
            raise InvalidArgumentError(refusal.remark, code=refusal.code)
        return self._put_topic(config)

    def _room_refusal(self, topic: str) -> Refusal | None:
        limit = self.topic_rules.topics_max
        if len(self.topic_table.topics) < limit or self.find(topic) is not None:
            return None
        return Refusal(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] is not made: there are {limit} (topicsMax)")

    def _put_topic(self, config: TopicConfig) -> bool:
        """Create or replace a topic. A new one gets a generation of its own, and a change keeps the one it has."""
        held = self.topic_table.get(config.topic_name)
        generation = config.generation or self._new_generation() if held is None else held.generation
        if generation != config.generation:
            attributes = {name: value for name, value in config.attributes.items() if name != GENERATION}
            config = replace(config, attributes=attributes | ({GENERATION: generation} if generation else {}))
        return self._replace(config)

    def _new_generation(self) -> str:
        self._last_generation = max(self._clock.now_ms(), self._last_generation + 1)
        return str(self._last_generation)

    def _replace(self, config: TopicConfig) -> bool:
        changed = self.topic_table.put(config, self._clock.now_ms())
        if changed:
            self._dirty = True
            if self.is_alone:
                self.unsaved[config.topic_name.encode()] = self.topic_table.version.counter
            self.on_topic_put(config)
            self.on_topics_changed([config])
        return changed

    def delete_topic(self, topic: str) -> bool:
        gone = self.topic_table.get(topic)
        if not self.topic_table.delete(topic, self._clock.now_ms()):
            return False
        self._dirty = True
        assert gone is not None
        self.on_topics_changed([replace(gone, perm=0)])
        return True

    # -- what the group's journal tells

    def learn_topic(self, name: str, config: TopicConfig | None) -> None:
        """Take a topic as the group's master has it; None where it has none."""
        if config is None:
            self.delete_topic(name)
        else:
            # With the generation that the master gave it, or with none: every replica tells the same one.
            self._replace(config)

    def learn_group(self, name: str, config: SubscriptionGroupConfig | None) -> None:
        """Take a group as the group's master has it; None where it has none."""
        if config is None:
            self.delete_group(name)
        elif self.group_table.put(config, self._clock.now_ms()):
            self._dirty = True

    def learn_forbidden(self, name: str, topics: Mapping[str, int] | None) -> None:
        """Take what a group may not read as the group's master has it."""
        if self.group_table.put_forbidden(name, topics or {}, self._clock.now_ms()):
            self._dirty = True

    # -- groups

    def group(self, name: str) -> SubscriptionGroupConfig | None:
        """Return the group, made if the rules allow."""
        found = self.group_table.get(name)
        if found is None:
            found = self.group_rules.find(name, self.group_table.groups)
            if found is not None:
                self.put_group(found)
        return found

    def put_group(self, config: SubscriptionGroupConfig) -> bool:
        """Create or replace; whether that changed anything. Raise where there are too many for one more."""
        table, limit = self.group_table, self.group_rules.groups_max
        if len(table.groups) >= limit and table.get(config.group_name) is None:
            raise InvalidArgumentError(
                f"group[{config.group_name}] is not made: there are {limit} (groupsMax)",
                code=ResponseCode.SYSTEM_ERROR,
            )
        changed = self.group_table.put(config, self._clock.now_ms())
        self._dirty = self._dirty or changed
        return changed

    def delete_group(self, name: str) -> bool:
        gone = self.group_table.delete(name, self._clock.now_ms())
        self._dirty = self._dirty or gone
        return gone

    def forbids(self, group: str, topic: str) -> bool:
        forbidden = self.group_table.forbidden
        return bool(forbidden) and is_forbidden(forbidden, group, topic)

    def touch(self) -> None:
        """Note that a table was changed directly and must be saved."""
        self._dirty = True

    # -- saving

    def when_saved(self, done: Saved) -> None:
        """Call back once everything changed so far is on disk and, in a group of replicas, confirmed."""

        def saved(error: StoreError | None) -> None:
            if error is None:
                self.confirm(done)
            else:
                done(error)

        if not self._dirty and not self._saving:
            saved(None)
        else:
            self._waiting.append(saved)

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for a save."""
        return self._saving or bool(self._waiting)

    def tick(self) -> None:
        """Save what changed, off this thread; one save at a time."""
        if not self._dirty or self._saving:
            return
        self._dirty, self._saving = False, True
        waiting, self._waiting = self._waiting, []
        failed: StoreError | None = None

        topics_version, groups_version = self.topic_table.version, self.group_table.version

        def topics_saved(error: StoreError | OSError | None) -> None:
            # One after the other: the text of a large table takes a while.
            nonlocal failed
            failed = _failure(error)
            self._topics_saved = topics_version if failed is None else None
            if failed is None:
                self._now_saved(topics_version.counter)
            if groups_version == self._groups_saved:
                saved(None)
            else:
                self.group_table.submit(saved)

        def saved(error: StoreError | OSError | None) -> None:
            nonlocal failed
            problem = _failure(error)
            self._groups_saved = groups_version if problem is None else None
            failed = failed or problem
            self._saving = False
            if failed is not None:
                self._dirty = True
                self._warn.error(
                    "save",
                    "topics and groups cannot be saved: a crash would lose the latest changes. It is tried again",
                    reason=failed,
                )
            if not self._dirty:
                # Whoever asked during this save and changed nothing has no other save to wait for.
                waiting.extend(self._waiting)
                self._waiting.clear()
            for done in waiting:
                done(failed)

        if topics_version == self._topics_saved:
            topics_saved(None)
        else:
            self.topic_table.submit(topics_saved)

    def _now_saved(self, counter: int) -> None:
        for topic in [one for one, changed in self.unsaved.items() if changed <= counter]:
            del self.unsaved[topic]

    def save_now(self) -> None:
        """Save what changed, blocking."""
        self.topic_table.save()
        self.unsaved.clear()
        self.group_table.save()
        self._dirty = False


def _failure(error: StoreError | OSError | None) -> StoreError | None:
    if error is None or isinstance(error, StoreError):
        return error
    return StoreError(f"topics or groups: {error}")
