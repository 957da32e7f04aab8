"""The state of a replicated group goes through its log: topics, groups, offsets, locks, deletions, settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aerobee.broker.groupstate.records import TOPIC, StateKind, StateRecord, read_state, state_draft
from aerobee.broker.membership.subscriptions import parse_subscription
from aerobee.hot.log.record import Draft
from aerobee.model.dialect import dumps
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.model.names import STATE_TOPIC
from aerobee.model.queue import MessageQueue
from aerobee.model.topic import GENERATION, TopicConfig
from aerobee.protocol.bodies.groups import SetMessageRequestModeRequestBody
from aerobee.protocol.bodies.lock import LockBatchRequestBody, LockBatchResponseBody
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.group import DeleteSubscriptionGroupRequestHeader
from aerobee.protocol.headers.offset import ResetOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from aerobee.protocol.headers.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from aerobee.testing.adminkit import AdminKit
from aerobee.testing.brokerkit import BrokerKit, run_broker, settle
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.pairkit import CONFIG, STORE, Pair, run_pair
from aerobee.testing.sendkit import send
from aerobee.testing.storekit import HOST, ROOT, bodies, draft, read_queue


def made(topic: str = "T", queues: int = 4) -> CreateTopicRequestHeader:
    return CreateTopicRequestHeader(
        topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6,
        topic_filter_type="SINGLE_TAG",
    )  # fmt: skip


async def make_topic(kit: BrokerKit, topic: str = "T", queues: int = 4) -> Command:
    return await AdminKit(kit).call(RequestCode.UPDATE_AND_CREATE_TOPIC, made(topic, queues))


async def delete_topic(kit: BrokerKit, topic: str = "T") -> Command:
    return await AdminKit(kit).call(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic=topic))


async def make_group(kit: BrokerKit, group: str = "G") -> Command:
    body = dumps(SubscriptionGroupConfig(group, retry_max_times=3).to_json())
    return await AdminKit(kit).call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


async def commit(kit: BrokerKit, offset: int, queue_id: int = 0) -> None:
    header = UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=queue_id, commit_offset=offset)
    answer = await kit.connect().call(request(RequestCode.UPDATE_CONSUMER_OFFSET, header, opaque=3))
    assert answer.code == 0, answer.remark


async def lock(kit: BrokerKit, client_id: str, *queue_ids: int, lease_ms: int | None = None) -> list[int]:
    body = LockBatchRequestBody("G", client_id, mq_set=tuple(MessageQueue("T", "broker-a", one) for one in queue_ids))
    ext = {} if lease_ms is None else {"__AEROBEE_LEASE_MS": str(lease_ms)}
    command = request(RequestCode.LOCK_BATCH_MQ, None, body.encode(), opaque=4)
    command.ext.update(ext)
    answer = await kit.connect().call(command)
    assert answer.code == 0, answer.remark
    return [one.queue_id for one in LockBatchResponseBody.decode(answer.body).lock_ok_mq_set]


def state_of(kit: BrokerKit) -> dict[str, object]:
    """Return everything that replicas must agree on."""
    catalog = kit.state.catalog
    return {
        "topics": dict(catalog.topic_table.topics),
        "groups": dict(catalog.group_table.groups),
        "forbidden": {group: dict(topics) for group, topics in catalog.group_table.forbidden.items()},
        "offsets": {key: dict(queues) for key, queues in kit.state.offsets.table.items() if "CID_RMQ_SYS" not in key},
        "resets": {key: dict(queues) for key, queues in kit.state.offsets.resets.items()},
        "modes": dict(kit.broker.tables.modes.table),
        "filters": kit.state.filters.entries(),
        "deletions": kit.store.deletions.positions(),
    }


def test_every_change_of_an_administrator_reaches_the_follower() -> None:
    async def main(pair: Pair) -> None:
        master, admin = pair.master, AdminKit(pair.master)
        await make_topic(master)
        await make_topic(master, "gone")
        await make_topic(master, queues=8)
        await make_group(master)
        await make_group(master, "H")
        forbid = UpdateGroupForbiddenRequestHeader(group="G", topic="T", readable=False)
        await admin.call(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, forbid)
        mode = SetMessageRequestModeRequestBody("T", "G", "PULL", 0)
        assert (await admin.call(RequestCode.SET_MESSAGE_REQUEST_MODE, body=mode.encode())).code == 0
        await commit(master, 0)
        reset = ResetOffsetRequestHeader(topic="T", group="G", timestamp=-1)
        assert (await admin.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)).code == 0
        await admin.consumer("byheartbeat", "client", "T")
        await delete_topic(master, "gone")
        await admin.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequestHeader(group_name="H"))
        await master.connect().call(send(topic="bysend"))
        await pair.pass_time(1.5)
        follower = state_of(pair.follower)
        assert follower == state_of(master)
        topics = pair.follower.state.catalog.topic_table.topics
        assert topics["T"].write_queue_nums == 8
        assert {"bysend", "%RETRY%byheartbeat"} <= topics.keys()
        assert "gone" not in topics
        assert pair.follower.state.offsets.resets
        leader = pair.fail_over()
        assert state_of(leader) == follower

    run_pair(main)


def test_every_replica_tells_the_generation_that_the_master_tells() -> None:
    """A topic of an older version has none. One that was made again has another than a follower's file may say."""

    async def main(pair: Pair) -> None:
        catalog, behind = pair.master.state.catalog, TopicConfig("again", 4, 4, attributes={GENERATION: "7"})
        catalog.topic_table.put(TopicConfig("old", 4, 4), 1)
        pair.follower.state.catalog.topic_table.put(behind, 1)
        await make_topic(pair.master, "again")
        await pair.pass_time(1.5)
        made = catalog.find("again")
        assert made is not None and made.generation not in ("", "7")
        assert pair.follower.state.catalog.find("again") == made
        leader = pair.fail_over()
        await leader.pass_time(2)
        found = leader.state.catalog.find("old")
        assert found is not None and found.generation == ""
        assert leader.state.catalog.find("again") == made

    run_pair(main)


def test_a_change_is_answered_when_the_group_has_confirmed_it() -> None:
    async def main(pair: Pair) -> None:
        store = pair.master.store
        await pair.master.pass_time(1)
        store.set_confirm_limit(store.log_end)
        client = pair.master.connect()
        client.send(request(RequestCode.UPDATE_AND_CREATE_TOPIC, made(), opaque=7))
        await pair.master.pass_time(1, 0.1)
        assert await client.answers() == []
        store.set_confirm_limit(store.log_end)
        assert [(one.opaque, one.code) for one in await client.answers()] == [(7, 0)]
        client.send(request(RequestCode.UPDATE_AND_CREATE_TOPIC, made("late"), opaque=8))
        await pair.master.pass_time(7, 0.1)
        answer = (await client.answers())[0]
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "confirmed" in (answer.remark or "")

    run_pair(main)


def test_the_owner_of_a_query_is_known_to_every_replica_before_its_first_record() -> None:
    async def main(pair: Pair) -> None:
        owners = pair.master.broker._seams.owners
        end = pair.master.store.log_end
        owners.put("totals", "bob")
        assert pair.master.store.log_end > end, "what is stored next stands behind it"
        owners.put("other", "eve")
        await pair.pass_time(1)
        assert dict(pair.follower.broker._seams.owners.table) == {"totals": "bob", "other": "eve"}
        owners.learn("other", None)
        await pair.pass_time(1)
        assert dict(pair.follower.broker._seams.owners.table) == {"totals": "bob"}
        pair.restart_follower()
        assert pair.fail_over().broker._seams.owners.get("totals") == "bob"

    run_pair(main)


def test_what_was_not_confirmed_is_gone_when_a_master_follows_again() -> None:
    """The files of a master that lost its role may hold changes that the group never confirmed."""

    async def main(pair: Pair) -> None:
        await make_topic(pair.master)
        await pair.pass_time(2)
        store = pair.master.store
        confirmed = store.log_end
        store.set_confirm_limit(confirmed)
        pair.master.connect().send(request(RequestCode.UPDATE_AND_CREATE_TOPIC, made("unconfirmed"), opaque=7))
        pair.master.connect().send(
            request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="T"), opaque=8)
        )
        await pair.master.pass_time(10)
        assert pair.master.state.catalog.find("T") is None
        assert not store.deletions.positions()
        store.abandon()
        old = pair.start_follower(confirmed, pair.disks[0])
        old.store.truncate(confirmed)
        assert state_of(old) == state_of(pair.follower)
        assert old.state.catalog.find("T") is not None

    run_pair(main)


def test_a_deleted_topic_is_deleted_at_the_same_place_everywhere() -> None:
    async def main(pair: Pair) -> None:
        await make_topic(pair.master)
        for number in range(5):
            await pair.master.connect().call(send(f"{number}", b"old"))
        pair.follower.follow(pair.master)
        await delete_topic(pair.master)
        await make_topic(pair.master)
        await pair.master.connect().call(send("new", b"new"))
        # The follower gets all of it in one piece.
        await pair.master.pass_time(1.5)
        pair.follower.follow(pair.master)
        for kit in (pair.master, pair.follower):
            assert bodies(kit.store, b"T") == [b"new"]
            assert kit.store.max_offset(b"T", 0) == 1
        assert state_of(pair.follower) == state_of(pair.master)
        pair.restart_follower()
        assert bodies(pair.follower.store, b"T") == [b"new"]
        leader = pair.fail_over()
        await leader.connect().call(send("more", b"more"))
        assert bodies(leader.store, b"T") == [b"new", b"more"]

    run_pair(main)


def test_messages_behind_an_unconfirmed_deletion_keep_their_numbers() -> None:
    """A topic is deleted and made again by a send before the deletion is confirmed: all replicas number alike."""

    async def main(pair: Pair) -> None:
        await make_topic(pair.master)
        await pair.master.connect().call(send("0", b"old"))
        await pair.pass_time(1.5)
        store = pair.master.store
        store.set_confirm_limit(store.log_end)
        pair.master.connect().send(
            request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="T"), opaque=8)
        )
        await settle()
        deleted = store.log_end
        pair.master.connect().send(send("1", b"between", opaque=9))
        await settle()
        store.set_confirm_limit(deleted)
        pair.master.connect().send(send("2", b"after", opaque=10))
        await pair.master.pass_time(0.1)
        store.set_confirm_limit(None)
        await pair.master.connect().call(send("3", b"last"))
        await pair.pass_time(1.5)
        for kit in (pair.master, pair.follower):
            found = read_queue(kit.store, b"T")
            assert [(one.queue_offset, one.body) for one in found] == [(1, b"between"), (2, b"after"), (3, b"last")]

    run_pair(main)


def test_offsets_are_at_most_a_second_old() -> None:
    async def main(pair: Pair) -> None:
        await make_topic(pair.master)
        await make_group(pair.master)
        records = []
        for offset in range(100):
            await commit(pair.master, offset)
            await pair.pass_time(0.1)
            records.append(pair.master.store.max_offset(TOPIC, 0))
        assert records[-1] - records[0] <= 11
        leader = pair.fail_over()
        assert 89 <= leader.state.offsets.query("G", "T", 0) <= 99

    run_pair(main)


def test_a_new_master_keeps_locks_until_their_lease_has_ended() -> None:
    async def main(pair: Pair) -> None:
        await make_topic(pair.master)
        assert await lock(pair.master, "one", 0, 1, lease_ms=6000) == [0, 1]
        assert await lock(pair.master, "java", 2) == [2]
        unlock = LockBatchRequestBody("G", "one", mq_set=(MessageQueue("T", "broker-a", 1),))
        await pair.master.connect().call(request(RequestCode.UNLOCK_BATCH_MQ, None, unlock.encode(), opaque=5))
        await pair.pass_time(5)
        assert await lock(pair.master, "one", 0, lease_ms=6000) == [0]
        leader = pair.fail_over()
        assert await lock(leader, "two", 0, 1, 2) == [1]
        await leader.pass_time(5)
        assert await lock(leader, "one", 0, lease_ms=6000) == [0]
        await leader.pass_time(6.1)
        assert await lock(leader, "two", 0, 2) == [0]
        await leader.pass_time(60)
        assert await lock(leader, "two", 2) == [2]

    run_pair(main)


def test_a_lock_is_given_when_the_group_knows_of_it_and_renewed_at_once() -> None:
    async def main(pair: Pair) -> None:
        await make_topic(pair.master)
        assert await lock(pair.master, "one", 0) == [0]
        store = pair.master.store
        store.set_confirm_limit(store.log_end)
        assert await lock(pair.master, "one", 0) == [0]
        body = LockBatchRequestBody("G", "two", mq_set=(MessageQueue("T", "broker-a", 1),))
        client = pair.master.connect()
        client.send(request(RequestCode.LOCK_BATCH_MQ, None, body.encode(), opaque=6))
        assert await client.answers() == []
        store.set_confirm_limit(store.log_end)
        assert [one.code for one in await client.answers()] == [0]

    run_pair(main)


def test_a_start_reads_from_the_last_snapshot() -> None:
    async def main(pair: Pair) -> None:
        for name in ("filler", *(f"T{number}" for number in range(300))):
            pair.master.state.catalog.put_topic(TopicConfig(name, 1, 1))
        for round_number in range(12):
            pair.master.store.append([draft(bytes(60_000), b"filler") for _ in range(4)])
            pair.master.state.catalog.put_topic(TopicConfig(f"round{round_number}", 1, 1))
            await pair.pass_time(1.5)
        kinds = [read_state(record).kind for record in read_queue(pair.master.store, TOPIC)]
        assert kinds.count(StateKind.END) >= 3
        pair.restart_follower()
        journal = pair.follower.broker.journal
        assert journal is not None
        assert journal._last_snapshot()[0] > 20
        assert state_of(pair.follower) == state_of(pair.master)

    run_pair(main)


def test_a_follower_of_a_log_without_its_beginning_has_the_state() -> None:
    async def main(pair: Pair) -> None:
        await make_topic(pair.master)
        await make_group(pair.master)
        await make_topic(pair.master, "filler")
        await pair.master.connect().call(send("x", queue_id=2))
        await commit(pair.master, 1, 2)
        for _ in range(24):
            pair.master.store.append([draft(bytes(60_000), b"filler") for _ in range(4)])
            await pair.master.pass_time(0.5)
        pair.master.store.flush_sinks()
        while pair.master.store.delete_oldest_segment():
            pass
        assert pair.master.store.log_start > 0
        assert pair.master.store.min_offset(b"T", 2) == 1
        await pair.master.pass_time(10)
        pair.follower.follow(pair.master)
        assert state_of(pair.follower) == state_of(pair.master)
        leader = pair.fail_over()
        # The queue's only record had expired. Its number is not given away again.
        answer = await leader.connect().call(send("y", queue_id=2))
        assert answer.ext["queueOffset"] == "1"

    run_pair(main)


@pytest.mark.parametrize("by", ["Apache", "Aerobee without replicas"])
def test_files_that_another_broker_wrote_win(by: str) -> None:
    disk = RecordingDisk(seed=1)

    async def first(kit: BrokerKit) -> None:
        await make_topic(kit, "mine")
        await kit.pass_time(10)

    async def meanwhile(kit: BrokerKit) -> None:
        await make_topic(kit, "theirs")
        await delete_topic(kit, "mine")
        await kit.pass_time(10)

    async def again(kit: BrokerKit) -> None:
        topics = kit.state.catalog.topic_table.topics
        assert "theirs" in topics
        assert "mine" not in topics
        await kit.pass_time(2)
        said = [read_state(one) for one in read_queue(kit.store, TOPIC)]
        assert any(one.entries.get("topics", {}).get("theirs") for one in said)

    run_broker(first, disk=disk, config=CONFIG, store_config=STORE, authority=lambda: True)
    if by == "Apache":
        path = f"{ROOT}/config/topics.json"
        text = _read(disk, path)
        assert b"aerobeeJournalled" in text
        text = text.replace(b"aerobeeJournalled", b"ignored").replace(b'"mine"', b'"theirs"')
        _write(disk, path, text.rstrip())
    else:
        run_broker(meanwhile, disk=disk, config=CONFIG, store_config=STORE)
    run_broker(again, disk=disk, config=CONFIG, store_config=STORE, authority=lambda: True)


def _read(disk: RecordingDisk, path: str) -> bytes:
    file = disk.open(path, write=False)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def _write(disk: RecordingDisk, path: str, content: bytes) -> None:
    disk.unlink(path)
    file = disk.open(path, create=True)
    file.write(0, content)
    file.close()


def test_settings_given_to_the_master_reach_the_follower() -> None:
    async def main(pair: Pair) -> None:
        body = b"brokerPermission=4\ntransactionCheckMax=7\n"
        assert (await AdminKit(pair.master).call(RequestCode.UPDATE_BROKER_CONFIG, body=body)).code == 0
        pair.follower.follow(pair.master)
        assert pair.follower.state.config.broker_permission == 4
        assert pair.follower.state.config.transaction_check_max == 7

    run_pair(main)


def test_a_broker_without_replicas_journals_nothing() -> None:
    async def main(kit: BrokerKit) -> None:
        await make_topic(kit)
        await make_group(kit)
        await kit.pass_time(5)
        assert kit.store.log_end == 0
        assert kit.broker.journal is None

    run_broker(main)


def test_no_client_can_write_the_state() -> None:
    async def main(pair: Pair) -> None:
        await pair.master.pass_time(1)
        before = pair.master.store.max_offset(TOPIC, 0)
        client = pair.master.connect()
        for properties in ({}, {"DELAY": "1"}, {"TIMER_DELAY_MS": "1"}, {"__AEROBEE_STATE": "1", "TAGS": "change"}):
            answer = await client.call(send(topic=STATE_TOPIC, properties=properties))
            assert answer.code != 0, properties
        await pair.master.pass_time(5)
        assert pair.master.store.max_offset(TOPIC, 0) == before
        assert (await delete_topic(pair.master, STATE_TOPIC)).code != 0

    run_pair(main)


def test_names_that_no_record_can_hold_stop_nothing() -> None:
    async def main(pair: Pair) -> None:
        await make_topic(pair.master)
        queue = MessageQueue("T", "broker-\ud800", 0)
        pair.master.state.locks.lock("G", [queue], "client-\ud800", pair.clock.monotonic())
        pair.master.state.offsets.commit("G", "T", 0, 5)
        await pair.pass_time(1.5)
        assert pair.follower.state.offsets.query("G", "T", 0) == 5
        await make_topic(pair.master, "U")
        await pair.pass_time(1.5)
        assert pair.follower.state.catalog.find("U") is not None

    run_pair(main)


def test_filters_reach_the_follower_and_go_with_the_group() -> None:
    async def main(pair: Pair) -> None:
        filters = pair.master.state.filters
        filters.register("G", [parse_subscription("T", "a > 1", "SQL92", 7)])
        await pair.pass_time(1.5)
        data = pair.follower.state.filters.get("T", "G")
        assert data is not None
        assert (data.expression, data.client_version, data.is_dead) == ("a > 1", 7, False)
        filters.unregister("G")
        await pair.pass_time(1.5)
        data = pair.follower.state.filters.get("T", "G")
        assert data is not None and data.is_dead
        assert pair.follower.state.filters.entries() == filters.entries()

    run_pair(main)


def test_an_orderly_stop_leaves_nothing_unsaid() -> None:
    disk = RecordingDisk(seed=1)

    async def first(kit: BrokerKit) -> None:
        await make_topic(kit)
        await make_group(kit)
        await kit.pass_time(2)
        await commit(kit, 41)

    async def again(kit: BrokerKit) -> None:
        assert kit.state.offsets.query("G", "T", 0) == 41

    for main in (first, again):
        run_broker(main, disk=disk, config=CONFIG, store_config=STORE, authority=lambda: True)


def test_an_idle_group_writes_nothing() -> None:
    async def main(pair: Pair) -> None:
        await pair.master.connect().call(send("x", properties={"TIMER_DELAY_MS": "1500"}))
        await pair.pass_time(10)
        end = pair.master.store.log_end
        await pair.pass_time(120, 1)
        assert pair.master.store.log_end == end

    run_pair(main)


def forged() -> Draft:
    """Return a deletion as a client could have sent it to another make of broker."""
    found = state_draft(StateRecord(StateKind.DELETE, topics=("T",)), HOST, 1)
    found.born_host = bytes(8)
    return found


EVIL = {
    "forged": forged(),
    "foreign": draft(b"{}", TOPIC),
    "garbage": replace(StateRecord(StateKind.CHANGE), entries={"topics": {"T": "no object"}}),
    "path": replace(StateRecord(StateKind.CHANGE), entries={"topics": {"../../etc": {}}}),
    "unknown": replace(StateRecord(StateKind.CHANGE), entries={"secrets": {"a": 1}}),
    "numbers": replace(StateRecord(StateKind.CHANGE), entries={"offsets": {"T@G": {"0": 2**70, "x": 1}}}),
    "negative": replace(StateRecord(StateKind.CHANGE), entries={"offsets": {"T@G": {"-1": 5}}}),
    "lock": replace(StateRecord(StateKind.CHANGE), entries={"locks": {"G": ["a"], "a@b@c@d": ["x", 1]}}),
    "timers": replace(StateRecord(StateKind.CHANGE), entries={"progress": {"timers": {"frontier": "x"}}}),
    "queue name": replace(StateRecord(StateKind.CHANGE), entries={"numbers": {"T\u00fc@0": 5, "T@1": -1, "T@x": 1}}),
    "end": replace(StateRecord(StateKind.END), begin=10**12),
    "settings": replace(StateRecord(StateKind.SETTINGS), values={"storePathRootDir": "/tmp/evil", "noSuch": "1"}),
    "delete": replace(StateRecord(StateKind.DELETE), topics=("a/b", "x" * 5000, "")),
}


@pytest.mark.parametrize("name", EVIL)
def test_a_record_that_makes_no_sense_changes_nothing(name: str) -> None:
    async def main(pair: Pair) -> None:
        await make_topic(pair.master)
        await pair.pass_time(1.5)
        before = state_of(pair.follower)
        found = EVIL[name]
        if isinstance(found, StateRecord):
            found = state_draft(found, HOST, 1)
        pair.master.store.append([found])
        await pair.pass_time(1.5)
        after = state_of(pair.follower)
        if name == "delete":
            after["deletions"] = before["deletions"]
        assert after == before
        pair.restart_follower()
        leader = pair.fail_over()
        await leader.pass_time(2)
        assert (await leader.connect().call(send())).code == 0

    run_pair(main)
