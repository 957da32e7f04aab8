"""The broker itself: settings, runtime info, statistics, overload."""

import asyncio

import pytest

from aerobee.access.config import AccessConfig
from aerobee.broker.config import BrokerConfig
from aerobee.broker.stats import TOPIC_PUT_NUMS
from aerobee.config.setting import settings_of
from aerobee.coordination.config import CoordinationConfig
from aerobee.model.topic import TopicConfig
from aerobee.net.config import TlsConfig
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import request
from aerobee.protocol.headers.cluster import ViewBrokerStatsDataRequestHeader
from aerobee.store.config import StoreConfig
from aerobee.testing.adminkit import AdminKit, run_admin


def test_settings_are_shown_under_rocketmqs_keys() -> None:
    async def main(kit: AdminKit) -> None:
        answer = await kit.call(RequestCode.GET_BROKER_CONFIG)
        lines = dict(line.split("=", 1) for line in answer.body.decode().splitlines())
        assert (lines["brokerName"], lines["listenPort"], lines["brokerIP1"]) == ("broker-a", "10911", "127.0.0.1")
        assert lines["fileReservedTime"] == "72"
        assert list(lines) == sorted(lines)
        assert answer.ext["version"] == '{"counter":0,"stateVersion":0,"timestamp":0}'

    run_admin(main)


def test_settings_change_and_everybody_who_keeps_one_hears_of_it() -> None:
    async def main(kit: AdminKit) -> None:
        state = kit.kit.state
        body = b"fileReservedTime=10\nautoCreateTopicEnable=false\nchannelExpiredTimeout=60000\nmaxMessageSize=1000\n"
        assert (await kit.call(RequestCode.UPDATE_BROKER_CONFIG, body=body)).code == 0
        assert state.config.auto_create_topic_enable is False
        assert state.catalog.topic_rules.auto_create is False
        assert state.clients.expiry_s == 60.0
        assert state.store.config.file_reserved_time_hours == 10
        ((config, store_config),) = kit.changed
        assert (config, store_config) == (state.config, state.store.config)
        answer = await kit.call(RequestCode.GET_BROKER_CONFIG)
        assert b"fileReservedTime=10\n" in answer.body
        assert '"counter":1' in answer.ext["version"]

    run_admin(main)


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (b"storePathRootDir=/etc", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        (b"namesrvAddr=1.2.3.4:5", ResponseCode.NO_PERMISSION, "namesrvAddr: cannot change while running"),
        (b"fileReservedTime=10\nbrokerName=x", ResponseCode.NO_PERMISSION, "brokerName"),
        (b"fileReservedTime=soon", ResponseCode.INVALID_PARAMETER, "is not a whole number"),
        (b"fileReservedTim=10", ResponseCode.INVALID_PARAMETER, "did you mean 'fileReservedTime'?"),
        (b"diskSpaceCleanForciblyRatio=-1", ResponseCode.INVALID_PARAMETER, "give a number from 30 to 85"),
    ],
)
def test_settings_that_are_refused_change_nothing(body: bytes, code: int, remark: str) -> None:
    async def main(kit: AdminKit) -> None:
        before = (await kit.call(RequestCode.GET_BROKER_CONFIG)).body
        answer = await kit.call(RequestCode.UPDATE_BROKER_CONFIG, body=body)
        assert answer.code == code
        assert remark in (answer.remark or "")
        assert (await kit.call(RequestCode.GET_BROKER_CONFIG)).body == before
        assert kit.changed == []

    run_admin(main)


_SAFE_TEXTS = {"defaultMessageRequestMode", "deleteWhen", "quotas"}


def test_nothing_of_security_and_no_path_changes_over_the_wire() -> None:
    """Every setting of access, TLS and the coordinator, and every text of the broker but three that name no place."""
    closed = [one for cls in (AccessConfig, TlsConfig, CoordinationConfig) for one in settings_of(cls)]
    texts = [one for cls in (BrokerConfig, StoreConfig) for one in settings_of(cls) if one.kind is str]
    keys = {one.java for one in (*closed, *texts)} - _SAFE_TEXTS

    async def main(kit: AdminKit) -> None:
        shown = (await kit.call(RequestCode.GET_BROKER_CONFIG)).body.decode()
        assert not {one.java for one in closed if one.secret} & {line.partition("=")[0] for line in shown.splitlines()}
        for key in sorted(keys):
            body = f"fileReservedTime=10\n{key}=marker-of-a-secret\n".encode()
            answer = await kit.call(RequestCode.UPDATE_BROKER_CONFIG, body=body)
            assert answer.code in (ResponseCode.NO_PERMISSION, ResponseCode.INVALID_PARAMETER), key
            assert key not in {one.java for one in closed} or "marker-of-a-secret" not in (answer.remark or "")
        assert kit.changed == []
        assert (await kit.call(RequestCode.GET_BROKER_CONFIG)).body.decode() == shown

    run_admin(main)


def test_the_whole_of_the_settings_may_be_sent_back() -> None:
    async def main(kit: AdminKit) -> None:
        shown = (await kit.call(RequestCode.GET_BROKER_CONFIG)).body.decode()
        # brokerIP1 and listenPort are shown as they came out, which is how they were given here.
        answer = await kit.call(RequestCode.UPDATE_BROKER_CONFIG, body=shown.replace("\\", "\\\\").encode())
        assert answer.code == 0, answer.remark

    run_admin(main)


# What Apache's 5.5.0 tells: RocketMQ: prepareRuntimeInfo, DefaultMessageStore.getRuntimeInfo, StoreStatsService.
APACHES_KEYS = """
bootTimestamp runtime putMessageEntireTimeMax putMessageTimesTotal putMessageFailedTimes putMessageSizeTotal
putMessageDistributeTime putMessageAverageSize dispatchMaxBuffer getMessageEntireTimeMax putTps getFoundTps getMissTps
getTotalTps getTransferredTps putLatency99 putLatency999 commitLogDiskRatio consumeQueueDiskRatio commitLogMinOffset
commitLogMaxOffset brokerActive brokerVersionDesc msgPutTotalYesterdayMorning msgPutTotalTodayMorning
msgPutTotalTodayNow msgGetTotalYesterdayMorning msgGetTotalTodayMorning msgGetTotalTodayNow dispatchBehindBytes
pageCacheLockTimeMills
earliestMessageTimeStamp startAcceptSendRequestTimeStamp timerReadBehind timerOffsetBehind timerCongestNum
timerEnqueueTps timerDequeueTps remainTransientStoreBufferNumbs remainHowManyDataToFlush commitLogDirCapacity
sendThreadPoolQueueSize sendThreadPoolQueueCapacity pullThreadPoolQueueSize pullThreadPoolQueueCapacity
litePullThreadPoolQueueSize litePullThreadPoolQueueCapacity queryThreadPoolQueueSize queryThreadPoolQueueCapacity
ackThreadPoolQueueSize ackThreadPoolQueueCapacity sendThreadPoolQueueHeadWaitTimeMills
pullThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueHeadWaitTimeMills litePullThreadPoolQueueHeadWaitTimeMills
ackThreadPoolQueueHeadWaitTimeMills EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity
""".split()


def test_runtime_info_has_every_key_of_apaches_and_counts() -> None:
    async def main(kit: AdminKit) -> None:
        kit.kit.state.catalog.put_topic(TopicConfig("T", 1, 1))
        first_ms = kit.kit.clock.now_ms()
        for _ in range(12):
            kit.put("T", 10)
            await kit.kit.pass_time(1)
        table = (await kit.json(RequestCode.GET_BROKER_RUNTIME_INFO))["table"]
        assert set(APACHES_KEYS) - set(table) == set()
        assert table["putMessageTimesTotal"] == "120"
        assert table["putTps"].split()[0] == "10.0"
        assert table["earliestMessageTimeStamp"] == str(first_ms)
        assert table["commitLogMaxOffset"] == str(kit.kit.store.log_end)
        assert table["commitLogDirCapacity"] == "Total : 1.0 TiB, Free : 512.0 GiB."
        assert table["brokerVersionDesc"] == "V5_5_0"
        assert all(isinstance(value, str) for value in table.values())

    run_admin(main)


def test_statistics_by_name_and_key() -> None:
    async def main(kit: AdminKit) -> None:
        code = RequestCode.VIEW_BROKER_STATS_DATA
        header = ViewBrokerStatsDataRequestHeader(stats_name=TOPIC_PUT_NUMS, stats_key="T")
        answer = await kit.call(code, header)
        assert (answer.code, answer.remark) == (1, "The stats <TOPIC_PUT_NUMS> <T> not exist")
        stats = kit.kit.state.stats
        stats.add(TOPIC_PUT_NUMS, "T", 50, kit.kit.clock.now_ms())
        stats.sample(kit.kit.clock.now_ms())
        found = await kit.json(code, header)
        assert found["statsMinute"] == {"avgpt": 50.0, "sum": 50, "tps": 5.0}

    run_admin(main)


def test_ha_status_of_a_master_alone() -> None:
    async def main(kit: AdminKit) -> None:
        kit.put("T", 1)
        found = await kit.json(RequestCode.GET_BROKER_HA_STATUS)
        assert (found["master"], found["haConnectionInfo"]) == (True, [])
        assert found["masterCommitLogMaxOffset"] == kit.kit.store.log_end

    run_admin(main)


def test_an_overloaded_broker_answers_administrators_busy() -> None:
    async def main(kit: AdminKit) -> None:
        # The loop's beat is overdue by more than waitTimeMillsInAdminBrokerQueue.
        await asyncio.sleep(6)
        answer = await kit.client.call(request(RequestCode.GET_BROKER_HA_STATUS, opaque=500))
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "[TIMEOUT_CLEAN_QUEUE]" in (answer.remark or "")

    run_admin(main)
