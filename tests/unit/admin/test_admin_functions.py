"""Admin functions against two real broker groups and a name server on loopback."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from aerobee.admin import groups, topics
from aerobee.admin.cluster import (
    broker_settings,
    change_broker_settings,
    cluster_status,
    forget_group,
    ping,
    runtime_info,
)
from aerobee.admin.connection import AdminConnection
from aerobee.admin.groups import GroupChange
from aerobee.admin.messages import find_by_key
from aerobee.admin.pending import Pending, levels_in
from aerobee.admin.portable import export_cluster
from aerobee.admin.replay import require_target
from aerobee.admin.topics import TopicChange, TopicDetails
from aerobee.app.broker import BrokerNode
from aerobee.app.identity import unique_ids
from aerobee.app.namesrv import NamesrvNode
from aerobee.app.process import disk_of_this_loop
from aerobee.broker.config import BrokerConfig
from aerobee.cli.main import main as main_command
from aerobee.client.producer.producer import Producer
from aerobee.errors import InvalidArgumentError, TransportError
from aerobee.errors.codes import (
    GroupNotExistError,
    IllegalOperationError,
    InvalidParameterError,
    NoPermissionError,
    TopicExistError,
    TopicNotExistError,
)
from aerobee.hot.log.properties import encode_properties
from aerobee.hot.log.record import Draft
from aerobee.model.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from aerobee.namesrv.config import NamesrvConfig
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.offset import UpdateConsumerOffsetRequestHeader
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.entropy import SystemEntropy
from aerobee.store.config import StoreConfig
from aerobee.testing.storekit import draft
from aerobee.testing.workload import eventually

HOST = "127.0.0.1"


class Cluster:
    """Two broker groups under one name server."""

    def __init__(self, admin: AdminConnection, brokers: list[BrokerNode]) -> None:
        self.admin = admin
        self.brokers = brokers

    def put(self, broker: int, topic: str, count: int) -> None:
        self.brokers[broker].state.store.append([draft(b"x", topic.encode()) for _ in range(count)])


def run_cluster(path: Path, main: Callable[[Cluster], Awaitable[None]]) -> None:
    async def run() -> None:
        disk, clock, entropy = disk_of_this_loop(), SystemClock(), SystemEntropy()
        namesrv = NamesrvNode(NamesrvConfig(listen_port=0), disk, clock, host=HOST)
        await namesrv.start()
        address = f"{HOST}:{namesrv.port}"
        brokers = []
        for name in ("broker-a", "broker-b"):
            config = BrokerConfig(broker_name=name, broker_ip1=HOST, listen_port=0, namesrv_addr=address)
            store_config = StoreConfig(
                store_path_root_dir=str(path / name), mapped_file_size_commit_log=1 << 20, max_message_size=1 << 16
            )
            ids = unique_ids(HOST, clock, entropy)
            brokers.append(BrokerNode(config, store_config, disk, clock, entropy, host=HOST, unique_id=ids))
            await brokers[-1].start()
        try:
            async with AdminConnection(address) as admin:
                await main(Cluster(admin, brokers))
        finally:
            for broker in brokers:
                await broker.stop()
            await namesrv.stop()
            disk.close()

    asyncio.run(run())


def test_topics_over_two_brokers(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        admin = cluster.admin
        made = await topics.create_topic(admin, "orders", TopicChange(4, 4, attributes={"+message.type": "FIFO"}))
        assert [(one.broker, one.read_queues) for one in made] == [("broker-a", 4), ("broker-b", 4)]
        with pytest.raises(TopicExistError, match="on broker-a, broker-b"):
            await topics.create_topic(admin, "orders", TopicChange())
        await topics.create_topic(admin, "only-b", TopicChange(), broker="broker-b")
        listed = {one.topic: one for one in (await topics.list_topics(admin)).topics}
        assert listed["orders"].brokers == ("broker-a", "broker-b")
        assert (listed["orders"].read_queues, listed["orders"].kind) == (8, "normal")
        assert listed["only-b"].brokers == ("broker-b",)
        assert {listed[name].kind for name in ("TBW102", "broker-a", "DefaultCluster")} == {"system"}

        cluster.put(1, "orders", 3)
        changed = await topics.update_topic(admin, "orders", TopicChange(perm=4))
        assert {(one.perm, one.write_queues, sorted(one.attributes)[-1]) for one in changed} == {(4, 4, "message.type")}
        found = await topics.topic_details(admin, "orders")
        assert found.messages == 3
        assert [(one.broker, one.queue_id) for one in found.queues[3:5]] == [("broker-a", 3), ("broker-b", 0)]
        assert found.queues[4].last_store_timestamp > 0
        assert found.to_json()["queues"][4]["messages"] == 3

        assert await topics.delete_topic(admin, "orders") == ("broker-a", "broker-b")
        for work in (topics.topic_details(admin, "orders"), topics.topic_route(admin, "orders")):
            with pytest.raises(TopicNotExistError, match="topic orders does not exist"):
                await work
        with pytest.raises(TopicNotExistError):
            await topics.update_topic(admin, "orders", TopicChange(perm=4))
        with pytest.raises(TopicNotExistError):
            await topics.delete_topic(admin, "orders")

    run_cluster(tmp_path, main)


def test_a_topic_reaches_the_route_before_long(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        await topics.create_topic(cluster.admin, "orders", TopicChange(2, 3))
        async with asyncio.timeout(60):
            while len(route := await _route(cluster.admin, "orders")) < 2:
                pass
        assert [(one.broker, one.read_queues, one.write_queues, one.perm) for one in route] == [
            ("broker-a", 2, 3, 6),
            ("broker-b", 2, 3, 6),
        ]
        assert route[0].addresses == {0: cluster.brokers[0].state.address}

    run_cluster(tmp_path, main)


async def _route(admin: AdminConnection, topic: str) -> tuple[topics.RouteEntry, ...]:
    try:
        return await topics.topic_route(admin, topic)
    except TopicNotExistError:
        return ()


def test_groups_and_their_lag(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        admin = cluster.admin
        await groups.create_group(admin, "billing", GroupChange(retry_max_times=3))
        with pytest.raises(IllegalOperationError, match="exists already"):
            await groups.create_group(admin, "billing", GroupChange())
        changed = await groups.update_group(admin, "billing", GroupChange(consume_enable=False))
        assert [(one.consume_enabled, one.retry_max_times) for one in changed] == [(False, 3), (False, 3)]
        (one,) = (await groups.list_groups(admin)).groups
        assert (one.group, one.members, one.brokers) == ("billing", 0, ("broker-a", "broker-b"))
        assert len((await groups.list_groups(admin, with_system=True)).groups) > 5

        await topics.create_topic(admin, "orders", TopicChange(1, 1))
        cluster.put(0, "orders", 5)
        cluster.put(1, "orders", 2)
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group="billing", topic="orders", queue_id=0, commit_offset=2
        )
        for broker in cluster.brokers:
            await admin.ask(broker.state.address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        lag = await groups.group_lag(admin, "billing")
        assert [(queue.broker, queue.lag) for queue in lag.queues] == [("broker-a", 3), ("broker-b", 0)]
        assert (lag.lag, lag.to_json()["lag"]) == (3, 3)
        assert (await groups.group_details(admin, "billing")).progress == lag

        assert await groups.delete_group(admin, "billing") == ("broker-a", "broker-b")
        for work in (groups.delete_group(admin, "billing"), groups.update_group(admin, "billing", GroupChange())):
            with pytest.raises(GroupNotExistError):
                await work
        assert (await groups.group_lag(admin, "billing")).queues == ()

    run_cluster(tmp_path, main)


def test_connected_producers_by_group(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        admin = cluster.admin
        await topics.create_topic(admin, "orders", TopicChange(1, 1))
        async with Producer(admin.namesrvs, group="shop") as shop, Producer(admin.namesrvs, group="till") as till:
            await shop.send("orders", b"x")
            await till.send("orders", b"x")
            await eventually(
                lambda: all({"shop", "till"} <= one.state.clients.producers().keys() for one in cluster.brokers)
            )
            found = await groups.list_producers(admin)
            assert {one.group for one in found.producers} == {"shop", "till"}
            (one,) = (await groups.list_producers(admin, group="shop")).producers
            assert (one.language, one.brokers) == ("PYTHON", ("broker-a", "broker-b"))
        assert (await groups.list_producers(admin, group="nobody")).producers == ()

    run_cluster(tmp_path, main)


def test_brokers_their_state_and_settings(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        admin = cluster.admin
        found = await cluster_status(admin)
        assert [(one.broker, one.broker_id, one.version, one.problem) for one in found] == [
            ("broker-a", 0, "V5_5_0", None),
            ("broker-b", 0, "V5_5_0", None),
        ]
        assert len(await ping(admin)) == 2
        assert (await runtime_info(admin, found[0].address))["brokerActive"] == "true"
        changed = await change_broker_settings(admin, {"fileReservedTime": "9"}, broker="broker-b")
        assert changed == (("broker-b",), ())
        _, (warning,) = await change_broker_settings(admin, {"sendMessageThreadPoolNums": "9"}, broker="broker-b")
        assert "sendMessageThreadPoolNums has no effect" in warning
        shown = await broker_settings(admin)
        assert [shown[name]["fileReservedTime"] for name in ("broker-a", "broker-b")] == ["72", "9"]
        with pytest.raises(NoPermissionError, match="storePathRootDir"):
            await change_broker_settings(admin, {"storePathRootDir": "/etc"})
        with pytest.raises(InvalidParameterError, match="not a whole number"):
            await change_broker_settings(admin, {"fileReservedTime": "soon"})
        with pytest.raises(InvalidArgumentError, match="there is no broker broker-c"):
            await broker_settings(admin, broker="broker-c")
        with pytest.raises(InvalidArgumentError, match="no cluster other"):
            await topics.list_topics(admin, cluster="other")

    run_cluster(tmp_path, main)


def test_a_broker_that_does_not_answer_is_named(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        # Gone without a goodbye: the name server still knows it.
        await cluster.brokers[1].server.close()
        listed = await topics.list_topics(cluster.admin)
        assert listed.topics
        (problem,) = listed.problems
        assert problem.startswith(f"broker broker-b at {cluster.brokers[1].state.address} cannot be reached")
        status = {one.broker: one.problem for one in await cluster_status(cluster.admin)}
        assert status["broker-a"] is None
        assert "connection refused" in (status["broker-b"] or "")

    run_cluster(tmp_path, main)


def test_no_name_server() -> None:
    async def main() -> None:
        async with AdminConnection("127.0.0.1:1;127.0.0.1:2") as admin:
            with pytest.raises(TransportError, match="no name server answers") as caught:
                await topics.list_topics(admin)
            assert "127.0.0.1:1: could not connect: connection refused" in caught.value.message
            assert "127.0.0.1:2" in caught.value.message

    asyncio.run(main())
    with pytest.raises(InvalidArgumentError):
        AdminConnection(" ; ")


def test_what_waits_is_shown_by_level_and_in_all(tmp_path: Path) -> None:
    def waiting(topic: str, queue_id: int, properties: dict[str, str]) -> Draft:
        one = draft(b"later", topic.encode(), queue_id, uniq_key="K")
        one.properties = encode_properties({"REAL_TOPIC": "T", "REAL_QID": "0", "UNIQ_KEY": "K", **properties})
        return one

    async def show(cluster: Cluster, topic: str, *more: str) -> str:
        words = ["topic", "show", "-n", cluster.admin.namesrvs[0], "-t", topic, *more]
        done = await asyncio.to_thread(CliRunner().invoke, main_command, words)
        assert done.exit_code == 0, done.output
        return done.stdout

    async def until_counted(cluster: Cluster, topic: str) -> TopicDetails:
        async with asyncio.timeout(60):
            while not (found := await topics.topic_details(cluster.admin, topic)).pending[0].pending:
                pass
        return found

    async def main(cluster: Cluster) -> None:
        store = cluster.brokers[0].state.store
        store.append([waiting(SCHEDULE_TOPIC, 17, {"DELAY": "18"}) for _ in range(3)])
        store.append([waiting(SCHEDULE_TOPIC, 13, {"DELAY": "14"})])
        far_ms = SystemClock().now_ms() + 3_600_000
        store.append([waiting(TIMER_TOPIC, 0, {"TIMER_OUT_MS": str(far_ms), "TIMER_DELIVER_MS": str(far_ms)})])
        half = draft(b"half", HALF_TOPIC.encode(), uniq_key="K")
        half.properties = encode_properties({"REAL_TOPIC": "T", "REAL_QID": "0", "TRAN_MSG": "true", "PGROUP": "P"})
        half.born_timestamp = SystemClock().now_ms()
        store.append([half])

        found = await topics.topic_details(cluster.admin, SCHEDULE_TOPIC)
        assert len(found.pending) == 2 * 18, "every level of both brokers"
        assert {one: count for one in found.pending if (count := one.pending)} == {
            Pending("broker-a", 14, "10m", 1): 1,
            Pending("broker-a", 18, "2h", 3): 3,
        }
        shown = [line.split() for line in (await show(cluster, SCHEDULE_TOPIC)).splitlines()]
        assert ["broker", "level", "delay", "pending"] in shown
        assert ["broker-a", "18", "2h", "3"] in shown
        assert ["broker-b", "18", "2h", "0"] in shown
        told = json.loads(await show(cluster, SCHEDULE_TOPIC, "--json"))["pending"]
        assert told[17] == {"broker": "broker-a", "level": 18, "delay": "2h", "pending": 3}

        for topic in (TIMER_TOPIC, HALF_TOPIC):
            counted = await until_counted(cluster, topic)
            assert counted.pending == (Pending("broker-a", None, None, 1), Pending("broker-b", None, None, 0))
            shown = [line.split() for line in (await show(cluster, topic)).splitlines()]
            assert shown[shown.index(["broker", "pending"]) + 1] == ["broker-a", "1"]
        await topics.create_topic(cluster.admin, "T", TopicChange())
        assert (await topics.topic_details(cluster.admin, "T")).pending == ()

    run_cluster(tmp_path, main)


def test_an_apache_broker_tells_how_far_each_level_is() -> None:
    info = {"scheduleMessageOffset_2": "7,9", "scheduleMessageOffset_9": "1,5"}
    assert levels_in(info, "b", ["1s", "5s"]) == [Pending("b", 1, "1s", 0), Pending("b", 2, "5s", 2)]


def test_a_fenced_or_full_broker_is_shown(tmp_path: Path) -> None:
    async def show(cluster: Cluster, *more: str) -> tuple[int, str, str]:
        words = ["cluster", "-n", cluster.admin.namesrvs[0], *more]
        done = await asyncio.to_thread(CliRunner().invoke, main_command, words)
        return done.exit_code, done.stdout, done.stderr

    async def main(cluster: Cluster) -> None:
        assert (await show(cluster))[0] == 0
        cluster.brokers[0].state.store.refuse_full("91% of the disk is in use")
        code, shown, warned = await show(cluster)
        assert (code, "full" in shown) == (0, True)
        assert "broker-a" in warned and "91% of the disk" in warned
        cluster.brokers[1].state.store.fence(OSError(5, "Input/output error", "/data/commitlog/0"))
        code, shown, warned = await show(cluster)
        assert (code, "fenced" in shown) == (1, True)
        assert "broker-b" in warned and "/data/commitlog/0" in warned and "restart" in warned
        code, shown, _ = await show(cluster, "--json")
        assert code == 1
        first, second = json.loads(shown)["brokers"]
        assert (first["fenced"], first["full"]) == (None, "91% of the disk is in use")
        assert "/data/commitlog/0" in second["fenced"]
        info = await runtime_info(cluster.admin, cluster.brokers[1].state.address)
        assert "/data/commitlog/0" in info["storeFenced"]
        assert "storeFull" not in info

    run_cluster(tmp_path, main)


def test_a_broker_group_that_left_is_named(tmp_path: Path) -> None:
    async def run_command(cluster: Cluster, *words: str) -> tuple[int, str]:
        namesrv = cluster.admin.namesrvs[0]
        done = await asyncio.to_thread(CliRunner().invoke, main_command, [*words, "-n", namesrv])
        return done.exit_code, done.output

    async def main(cluster: Cluster) -> None:
        admin = cluster.admin
        await topics.create_topic(admin, "T", TopicChange(2, 2))
        await topics.create_topic(admin, "ALONE", TopicChange(2, 2), broker="broker-a")
        await groups.create_group(admin, "G", GroupChange())
        header = UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=0, commit_offset=0)
        await admin.ask(cluster.brokers[0].state.address, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        cluster.put(0, "T", 1)
        cluster.put(1, "T", 2)
        # The group has no offset at the second broker, whose messages are behind it all the same.
        assert (await groups.group_lag(admin, "G")).lag == 3

        await cluster.brokers.pop().stop()
        left = "broker group broker-b cannot be asked: it left the name server, and what it holds is missing here"
        assert (await topics.list_topics(admin)).problems == (left,)
        assert (await topics.topic_details(admin, "T")).problems == (left,)
        assert (await topics.topic_details(admin, "ALONE")).problems == ()
        assert left in (await groups.group_lag(admin, "G")).problems
        assert (await groups.list_groups(admin)).problems == (left,)
        assert (await find_by_key(admin, "T", "k")).problems == (left,)
        status = {one.broker: one.problem for one in await cluster_status(admin)}
        assert status["broker-a"] is None
        assert "left the name server" in (status["broker-b"] or "")
        for refused in (export_cluster(admin), require_target(admin, "T", "ALONE")):
            with pytest.raises(TransportError, match="broker-b") as caught:
                await refused
            assert "aerobee cluster forget" in (caught.value.hint or "")
        with pytest.raises(TransportError, match="broker-b cannot be asked"):
            await broker_settings(admin, broker="broker-b")

        for words in (
            ("topic", "list"), ("topic", "show", "-t", "T"), ("group", "list"), ("group", "lag", "-g", "G"),
            ("cluster",), ("message", "find", "-t", "T", "--key", "k"),
            ("tail", "-t", "T", "--until-end"), ("consume", "-t", "T", "-g", "G", "--until-end"),
        ):  # fmt: skip
            code, said = await run_command(cluster, *words)
            assert (code, "broker-b" in said) == (3, True), (words, said)
        code, said = await run_command(cluster, "topic", "delete", "-t", "T", "--yes")
        assert (code, "broker-b" in said and "does not hold there" in said) == (0, True)
        assert await forget_group(admin, "broker-b")
        assert (await topics.list_topics(admin)).problems == ()
        assert (await run_command(cluster, "topic", "list"))[0] == 0

    run_cluster(tmp_path, main)
