"""Every state file: what a table takes is saved and read back equal, and nothing it takes is set aside at a start.

Names, texts and numbers are whatever a request may carry. What no table takes, it refuses when it is put. What whole
brokers do with requests is in `tests/hostile/test_parse.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.broker.delay.timers.ledger import TimerProgress
from aerobee.broker.membership.filters import ConsumerFilters
from aerobee.broker.membership.subscriptions import SQL92, Subscription
from aerobee.broker.refusal import Refusal
from aerobee.broker.topics.groups import change, settings_problem
from aerobee.broker.topics.rules import TopicRules
from aerobee.config.properties import parse_properties, render_properties
from aerobee.errors import ConfigError, InvalidArgumentError
from aerobee.model.dialect import DialectError, dumps, loads
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.topic import TopicConfig
from aerobee.namesrv.kvconfig import KVConfig
from aerobee.store.checkpoint import Checkpoint, decode_checkpoint
from aerobee.store.durablemark import DurableMark
from aerobee.store.metadata.groups import GroupTable
from aerobee.store.metadata.offsets import ConsumerOffsetTable, DelayOffsetTable
from aerobee.store.metadata.plain import ConsumerFilterTable, MessageRequestModeTable
from aerobee.store.metadata.table import MetadataTable
from aerobee.store.metadata.topics import TopicTable
from aerobee.store.queuetable import QueueTable, decode_table
from aerobee.store.statefile import StateFile, seal, unseal
from aerobee.testing.clock import VirtualClock
from aerobee.testing.disk import RecordingDisk

T = TypeVar("T", bound=MetadataTable)

ROOT = "/store"
INT64 = st.integers(-(2**63), 2**63 - 1)
COUNT = st.integers(0, 2**62)
ANY_INT = st.one_of(st.integers(0, 70_000), INT64, st.integers())
ODD = st.sampled_from(["a/b", "..", "a\0b", "a\nb", "x" * 4000, "a@b", "%RETRY%g+t", "", " ", "\ud800", "plain"])
# Names as the wire brings them: JSON refuses half a pair, so that text is text.
TEXT = st.one_of(ODD.filter(lambda text: text != "\ud800"), st.text(max_size=20))
NAME = st.one_of(ODD, st.text(st.characters(), max_size=20), st.from_regex(r"[%|a-zA-Z0-9_-]{1,20}", fullmatch=True))


def read_again(table: T, kind: Callable[[RecordingDisk, str], T], disk: RecordingDisk) -> T:
    """The table as a start finds it, having saved it."""
    table.save()
    again = kind(disk, ROOT)
    assert again.load(1)
    assert again.rejected == 0
    assert again.to_bytes() == table.to_bytes()
    return again


def from_wire(data: dict[str, Any]) -> Any:
    """An object as a handler reads it from a body."""
    return loads(dumps(data))


@given(
    st.lists(
        st.tuples(NAME, ANY_INT, ANY_INT, ANY_INT, ANY_INT, st.sampled_from(["SINGLE_TAG", "MULTI_TAG", "x", ""])),
        max_size=5,
    )
)
def test_topics(rows: list[tuple[str, int, int, int, int, str]]) -> None:
    disk = RecordingDisk()
    table = TopicTable(disk, ROOT)
    rules = TopicRules("cluster", "broker")
    for name, reads, writes, perm, flag, kind in rows:
        made = rules.change(TopicConfig(name, reads, writes, perm, kind, flag), table.get(name))
        if not isinstance(made, Refusal):
            table.put(made, 1)
    table.put(TopicConfig("always"), 1)
    assert read_again(table, TopicTable, disk).topics == table.topics


@given(st.lists(st.tuples(NAME, ANY_INT, ANY_INT, TEXT, st.lists(INT64, max_size=3)), max_size=5))
def test_groups_and_what_they_may_not_read(rows: list[tuple[str, int, int, str, list[int]]]) -> None:
    disk = RecordingDisk()
    table = GroupTable(disk, ROOT)
    for name, queues, times, text, delays in rows:
        with contextlib.suppress(DialectError):
            wanted = SubscriptionGroupConfig.from_json(
                {
                    "groupName": name,
                    "retryQueueNums": queues,
                    "retryMaxTimes": times,
                    "attributes": {"+lite.bind.topic": text},
                    "groupRetryPolicy": {"type": text, "customizedRetryPolicy": {"next": delays}},
                    "subscriptionDataSet": [{"topic": text, "expression": text, "version": delays[0] if delays else 0}],
                }
            )
            made = change(wanted, None)
            assert isinstance(made, Refusal) or settings_problem(made) is None
            if not isinstance(made, Refusal):
                table.put(made, 1)
        with contextlib.suppress(InvalidArgumentError):
            table.put_forbidden("always", {name: 4}, 1)
        with contextlib.suppress(InvalidArgumentError):
            table.put_forbidden(name, {"always": 4}, 1)
    table.put(SubscriptionGroupConfig("always"), 1)
    again = read_again(table, GroupTable, disk)
    assert (again.groups, again.forbidden) == (table.groups, table.forbidden)


@given(st.dictionaries(TEXT, st.dictionaries(INT64, INT64, max_size=3), max_size=4))
def test_consumer_offsets(offsets: dict[str, dict[int, int]]) -> None:
    disk = RecordingDisk()
    table = ConsumerOffsetTable(disk, ROOT)
    table.table.update(offsets)
    assert read_again(table, ConsumerOffsetTable, disk).table == table.table


@given(st.dictionaries(st.integers(1, 100), INT64), st.one_of(st.none(), INT64))
def test_delay_offsets(offsets: dict[int, int], rescan_from: int | None) -> None:
    disk = RecordingDisk()
    table = DelayOffsetTable(disk, ROOT)
    table.table.update(offsets)
    table.rescan_from = rescan_from
    again = read_again(table, DelayOffsetTable, disk)
    assert (again.table, again.rescan_from) == (offsets, rescan_from)


@given(st.lists(st.tuples(NAME, NAME, st.sampled_from(["a > 5", "a = 'é\n'", "a > >", "x" * 5000]), INT64), max_size=6))
def test_filters(rows: list[tuple[str, str, str, int]]) -> None:
    disk, clock = RecordingDisk(), VirtualClock(lambda: 0.0, wall_ms=1_700_000_000_000)
    filters = ConsumerFilters(ConsumerFilterTable(disk, ROOT), clock)
    for topic, group, expression, version in rows:
        if topic:
            filters.register(group, [Subscription(topic, expression, version=version, expression_type=SQL92)])
    filters.save()
    again = ConsumerFilters(ConsumerFilterTable(disk, ROOT), clock)
    again.load()
    assert again.rejected == 0
    for topic, group, _, _ in rows:
        before, after = filters.get(topic, group), again.get(topic, group)
        assert (before is None) == (after is None)
        if before is not None and after is not None:
            assert (before.expression, before.client_version) == (after.expression, after.client_version)


MODE = st.dictionaries(TEXT, st.one_of(INT64, TEXT, st.booleans()), max_size=2)


@given(st.dictionaries(NAME, st.dictionaries(TEXT, MODE, max_size=2), max_size=2))
def test_request_modes(modes: dict[str, dict[str, Any]]) -> None:
    disk = RecordingDisk()
    table = MessageRequestModeTable(disk, ROOT)
    for topic, groups in modes.items():
        with contextlib.suppress(InvalidArgumentError):
            table.put(topic, from_wire(groups), 1)
    table.put("always", {}, 1)
    assert read_again(table, MessageRequestModeTable, disk).table == table.table


@given(st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=8))
def test_the_name_servers_values(rows: list[tuple[str, str, str]]) -> None:
    disk = RecordingDisk()
    table = KVConfig(disk, "/store/kv.json")
    kept: dict[tuple[str, str], str] = {}
    for namespace, key, value in rows:
        with contextlib.suppress(InvalidArgumentError):
            table.put(namespace, key, value)
            kept[namespace, key] = value
    again = KVConfig(disk, "/store/kv.json")
    again.load()
    assert {pair: again.get(*pair) for pair in kept} == kept
    assert not disk.exists("/store/kv.json.rejected")


@given(st.dictionaries(TEXT, TEXT))
def test_settings_files(values: dict[str, str]) -> None:
    """UPDATE_NAMESRV_CONFIG writes what `parse_properties` read."""
    with contextlib.suppress(ConfigError):
        taken = parse_properties(render_properties(values))
        assert parse_properties(render_properties(taken)) == taken == values


@given(
    st.dictionaries(st.tuples(TEXT, st.integers(0, 2**31 - 1)), st.tuples(COUNT, COUNT, COUNT), max_size=5),
    COUNT,
    st.one_of(st.none(), st.tuples(COUNT, COUNT, COUNT)),
    st.booleans(),
)
def test_the_queue_table(
    queues: dict[tuple[str, int], tuple[int, int, int]], position: int, last: Any, rebuilding: bool
) -> None:
    table = QueueTable(position, last, queues, rebuilding)
    assert decode_table(table.encode()) == table


@given(COUNT, st.integers(-1, 2**62))
def test_the_durable_mark(offset: int, sealed_from: int) -> None:
    disk = RecordingDisk()
    mark = DurableMark(disk, "/store/config")
    mark.open()
    mark.sealed_from = sealed_from
    mark.save(offset)
    mark.close()
    again = DurableMark(disk, "/store/config")
    assert again.peek() == [True] * 3
    assert (again.offset, again.sealed_from) == (offset, sealed_from)


@given(
    st.builds(Checkpoint, **dict.fromkeys(("physic_msg_timestamp", "confirm_phy_offset", "index_msg_timestamp"), COUNT))
)
def test_the_checkpoint(checkpoint: Checkpoint) -> None:
    assert decode_checkpoint(checkpoint.encode()) == (checkpoint, [])


@given(COUNT, COUNT, st.dictionaries(COUNT, INT64, max_size=5), st.lists(COUNT, max_size=3))
def test_the_timers_progress(frontier: int, offset: int, waiting: dict[int, int], runs: list[int]) -> None:
    progress = TimerProgress(frontier, offset, waiting, 1, 2, tuple(runs))
    assert TimerProgress.decode(progress.encode()) == progress


@given(st.binary(min_size=1).filter(lambda content: content.strip(b"\0 \t\r\n")))
@settings(max_examples=200)
def test_any_content_is_sealed_and_unsealed(content: bytes) -> None:
    assert unseal(seal(content)) == content
    disk = RecordingDisk()
    StateFile(disk, "/store/config/transactionProgress.json").save(content)
    assert StateFile(disk, "/store/config/transactionProgress.json").load(bytes) == content
