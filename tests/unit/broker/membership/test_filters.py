"""Filters of groups: versions, death and return, the file as Apache keeps it, and what a pull is answered."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from aerobee.broker.membership.clients import Clients
from aerobee.broker.membership.filters import ConsumerFilters
from aerobee.broker.membership.members import Client, GroupHeartbeat
from aerobee.broker.membership.subscriptions import Subscription
from aerobee.broker.pull import rules as pulls
from aerobee.broker.pull.rules import PullContext, PullRules, check_pull
from aerobee.broker.refusal import Refusal
from aerobee.errors import InvalidArgumentError
from aerobee.hot.log.properties import encode_properties
from aerobee.hot.wire.pull import PullFields
from aerobee.model.dialect import loads
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import ResponseCode
from aerobee.store.metadata.plain import ConsumerFilterTable
from aerobee.testing.clock import VirtualClock
from aerobee.testing.disk import RecordingDisk

APACHES_FILE = Path(__file__).parents[3] / "golden" / "data" / "consumerFilter.json"
FILE = "/store/config/consumerFilter.json"


def sql(expression: str, version: int = 1, topic: str = "t") -> Subscription:
    return Subscription(topic, expression, version=version, expression_type="SQL92")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def disk() -> RecordingDisk:
    return RecordingDisk()


@pytest.fixture
def filters(disk: RecordingDisk, clock: VirtualClock) -> ConsumerFilters:
    return ConsumerFilters(ConsumerFilterTable(disk, "/store"), clock)


def known(filters: ConsumerFilters, topic: str = "t", group: str = "g") -> tuple[str, int, bool] | None:
    data = filters.get(topic, group)
    return None if data is None else (data.expression, data.client_version, data.is_dead)


class TestRegister:
    def test_only_a_newer_version_replaces(self, filters: ConsumerFilters) -> None:
        filters.register("g", [sql("a = 1", 5)])
        filters.register("g", [sql("a = 2", 5)])
        filters.register("g", [sql("a = 3", 4)])
        assert known(filters) == ("a = 1", 5, False)
        filters.register("g", [sql("a = 1", 6)])
        assert known(filters) == ("a = 1", 6, False)
        filters.register("g", [sql("a = 4", 7)])
        assert known(filters) == ("a = 4", 7, False)

    def test_tags_are_no_filter(self, filters: ConsumerFilters) -> None:
        filters.register("g", [Subscription("t", "A", version=1)])
        assert known(filters) is None

    def test_a_wrong_expression_removes_the_old_one(self, filters: ConsumerFilters) -> None:
        filters.register("g", [sql("a >", 1)])
        assert known(filters) is None
        filters.register("g", [sql("a = 1", 2)])
        filters.register("g", [sql("a >", 3)])
        assert known(filters) is None

    def test_a_group_that_goes_or_drops_the_topic_is_dead_until_it_is_back(
        self, filters: ConsumerFilters, clock: VirtualClock
    ) -> None:
        filters.register("g", [sql("a = 1"), sql("b = 1", topic="u")])
        filters.register("h", [sql("c = 1")])
        clock.advance(1)
        filters.register("g", [sql("a = 1")])
        assert known(filters, "u") == ("b = 1", 1, True)
        filters.unregister("g")
        assert known(filters) == ("a = 1", 1, True)
        assert known(filters, group="h") == ("c = 1", 1, False)
        filters.register("g", [sql("a = 1", 1)])
        assert known(filters) == ("a = 1", 1, False)

    def test_what_is_dead_for_a_day_is_forgotten(self, filters: ConsumerFilters, clock: VirtualClock) -> None:
        filters.register("g", [sql("a = 1")])
        filters.register("h", [sql("a = 1")])
        filters.unregister("g")
        clock.advance(86_399)
        filters.clean()
        assert known(filters) is not None
        clock.advance(1)
        filters.clean()
        assert known(filters) is None
        assert known(filters, group="h") is not None


class TestFile:
    def test_apaches_file_is_taken_up_and_written_the_same(self, disk: RecordingDisk, clock: VirtualClock) -> None:
        table = ConsumerFilterTable(disk, "/store")
        table.state.save(APACHES_FILE.read_bytes())
        filters = ConsumerFilters(table, clock)
        filters.load()
        assert known(filters, "TopicTest", "group") == ("a > 5 AND b = 'it''s'", 1700000000001, True)
        for group, topic in (("group", "TopicTest"), ("another_group_with_a_long_name", "TopicTest")):
            data = filters.get(topic, group)
            assert data is not None
            assert data.dead_time_ms == max(clock.now_ms() - 30_000, data.born_time_ms)
            data.dead_time_ms = 0
        filters.save()
        file = disk.open(FILE, write=False)
        # The order of names too: JSON objects keep it.
        assert str(loads(file.read(0, file.size()))) == str(loads(APACHES_FILE.read_bytes()))

    def test_it_is_saved_by_ticks_and_read_after_a_crash(
        self, filters: ConsumerFilters, disk: RecordingDisk, clock: VirtualClock
    ) -> None:
        filters.register("g", [sql("a = 1", 3)])
        assert not disk.exists(FILE)
        filters.tick()
        disk.run_pending()
        again = ConsumerFilters(ConsumerFilterTable(disk, "/store"), clock)
        again.load()
        assert known(again) == ("a = 1", 3, True)
        again.register("g", [sql("a = 1", 3)])
        assert known(again) == ("a = 1", 3, False)

    def test_a_saved_expression_that_cannot_be_used_is_left_out(self, disk: RecordingDisk, clock: VirtualClock) -> None:
        table = ConsumerFilterTable(disk, "/store")
        table.state.save(APACHES_FILE.read_bytes().replace(b"a > 5 AND", b"a > > AND"))
        filters = ConsumerFilters(table, clock)
        filters.load()
        assert known(filters, "TopicTest", "group") is None
        assert known(filters, "OrderTopic", "group") is not None


class TestAcceptor:
    def accept(
        self,
        filters: ConsumerFilters,
        subscription: Subscription,
        properties: dict[str, str],
        *,
        carried: bool = False,
        support_retry: bool = False,
    ) -> bool:
        accept = filters.acceptor(subscription, "g", carried=carried, support_retry=support_retry)
        assert accept is not None
        return accept(encode_properties(properties))

    def test_the_registered_filter_counts_or_the_one_a_pull_brings(self, filters: ConsumerFilters) -> None:
        filters.register("g", [sql("a = 1")])
        assert self.accept(filters, sql("a = 2"), {"a": "1"})
        assert not self.accept(filters, sql("a = 2"), {"a": "1"}, carried=True)
        assert self.accept(filters, sql("a = 2"), {"a": "2"}, carried=True)
        assert not self.accept(filters, sql("a > 2"), {"a": "x"}, carried=True), "what cannot be compared is no match"
        assert filters.acceptor(Subscription("t", "A"), "g", carried=False, support_retry=True) is None

    def test_a_retry_is_filtered_as_its_topic_where_that_is_asked_for(self, filters: ConsumerFilters) -> None:
        filters.register("g", [sql("a = 1")])
        retries = sql("b = 1", topic="%RETRY%g")
        for block, taken in (({"a": "1", "RETRY_TOPIC": "t"}, True), ({"a": "2", "RETRY_TOPIC": "t"}, False)):
            assert self.accept(filters, retries, block, carried=True, support_retry=True) is taken
        assert self.accept(filters, retries, {"a": "2", "RETRY_TOPIC": "other"}, support_retry=True)
        assert not self.accept(filters, retries, {"a": "1", "RETRY_TOPIC": "t"}, carried=True)

    def test_one_expression_is_compiled_once(self, filters: ConsumerFilters) -> None:
        first = filters.compile("a = 1", "SQL92")
        assert filters.compile("a = 1", "SQL92") is first
        for number in range(100):
            filters.compile(f"a = {number} OR b = '{'x' * 4000}'", "SQL92")
        assert filters.compile("a = 1", "SQL92") is not first
        with pytest.raises(InvalidArgumentError):
            filters.compile("a = 1", "XPATH")


class TestPulls:
    RULES = PullRules("10.0.0.1", property_filter=True)

    def context(self, filters: ConsumerFilters, version: int = 5) -> PullContext:
        clients = Clients()
        data = GroupHeartbeat("g", subscriptions=(sql("a = 1", version),))
        clients.register_consumer(data, Client("channel", "c"), 0.0)
        topic = TopicConfig("t", 4, 4)
        return PullContext(SubscriptionGroupConfig("g"), topic, clients, "channel", "10.0.0.9:5", filters=filters)

    def header(self, flag: int = 0, subscription: str | None = None, version: int = 5) -> PullFields:
        return PullFields(
            consumer_group="g", topic="t", queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=flag, commit_offset=0,
            suspend_timeout_millis=0, subscription=subscription, sub_version=version, expression_type="SQL92",
        )  # fmt: skip

    def test_versions_of_the_filter(self, filters: ConsumerFilters) -> None:
        context = self.context(filters)
        missing = check_pull(self.RULES, self.header(), context, 0.0)
        assert isinstance(missing, Refusal)
        assert missing.code == ResponseCode.FILTER_DATA_NOT_EXIST
        assert "Your expression may be wrong" in missing.remark
        filters.register("g", [sql("a = 1", 4)])
        old = check_pull(self.RULES, self.header(), context, 0.0)
        assert isinstance(old, Refusal)
        assert old.code == ResponseCode.FILTER_DATA_NOT_LATEST
        filters.register("g", [sql("a = 1", 5)])
        assert isinstance(check_pull(self.RULES, self.header(), context, 0.0), Subscription)
        off = check_pull(dataclasses.replace(self.RULES, property_filter=False), self.header(), context, 0.0)
        assert isinstance(off, Refusal)
        assert off.code == ResponseCode.SYSTEM_ERROR

    def test_a_carried_filter_is_compiled_or_refused_with_the_place(self, filters: ConsumerFilters) -> None:
        context = self.context(filters)
        asked = self.header(pulls.FLAG_SUBSCRIPTION, "a > 3")
        assert isinstance(check_pull(self.RULES, asked, context, 0.0), Subscription)
        wrong = check_pull(self.RULES, self.header(pulls.FLAG_SUBSCRIPTION, "a > 'x'"), context, 0.0)
        assert isinstance(wrong, Refusal)
        assert wrong.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert wrong.remark.endswith("at character 5\n  a > 'x'\n      ^")
