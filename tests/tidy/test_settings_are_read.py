"""What the settings' page promises is done: a setting is read by a running server, or says that it has no effect.

A cluster runs through a day in a second, and every read of a setting is noted. What only special circumstances read is
listed below with the test that shows its effect.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import aerobee
from aerobee.admin import messages, topics
from aerobee.admin.connection import AdminConnection
from aerobee.broker.config import BrokerConfig
from aerobee.config.setting import Settings, settings_of
from aerobee.namesrv.config import NamesrvConfig
from aerobee.net.config import TlsConfig
from aerobee.store.config import StoreConfig
from aerobee.testing.cluster import LocalCluster

TESTS = Path(__file__).parents[1]
CLASSES: list[type[Settings]] = [BrokerConfig, StoreConfig, NamesrvConfig, TlsConfig]
# Who reads a setting to print, copy or check it does not use it.
NOT_USES = ("aerobee.config.", "aerobee.app.honoured", "dataclasses")
CHECKS = ("relations", "__post_init__", "__eq__", "__hash__", "__repr__")
# Key: the file of a test that shows what the setting does.
SHOWN = {
    "allowRecallWhenBrokerNotWriteable": "hostile/test_settings.py",
    "configStorePath": "unit/namesrv/test_handlers.py",
    "deleteCommitLogFilesInterval": "hostile/test_settings.py",
    "deleteFileBatchMax": "hostile/test_settings.py",
    "defaultQueryMaxNum": "unit/broker/offsets/test_offset_handlers.py",
    "enableAllTopicList": "unit/namesrv/test_handlers.py",
    "defaultMessageRequestMode": "unit/broker/pop/test_pop_assignment.py",
    "defaultPopShareQueueNum": "unit/broker/pop/test_pop_assignment.py",
    "enableTopicList": "unit/namesrv/test_handlers.py",
    "inSyncReplicas": "unit/app/test_static_roles.py",
    "minInSyncReplicas": "hostile/test_settings.py",
    "msgTraceTopicName": "hostile/test_settings.py",
    "notifyMinBrokerIdChanged": "unit/namesrv/test_handlers.py",
    "popFromRetryProbability": "unit/broker/pop/test_pop_priority.py",
    "popFromRetryProbabilityForPriority": "unit/broker/pop/test_pop_priority.py",
    "priorityOrderAsc": "unit/broker/pop/test_pop_priority.py",
    "returnOrderTopicConfigToBroker": "unit/namesrv/test_handlers.py",
    "haSendHeartbeatInterval": "unit/app/test_static_roles.py",
    "haHousekeepingInterval": "unit/app/test_static_roles.py",
    "haTransferBatchSize": "unit/app/test_static_roles.py",
    "haMasterAddress": "unit/app/test_static_roles.py",
    "haMaxGapNotInSync": "unit/app/test_static_roles.py",
    "slaveTimeout": "unit/app/test_static_roles.py",
    "brokerIP2": "unit/app/test_static_roles.py",
    "storeReplyMessageEnable": "unit/broker/send/test_send_handlers.py",
    "storeType": "unit/store/test_config.py",
    "tls.client.keyPassword": "unit/pyspark_rocketmq/test_rocketmq_options.py",
    "tls.client.trustCertPath": "interop/test_java_tls.py",
    "tls.client.verifyHost": "unit/app/test_group_tls.py",
    "tls.server.keyPassword": "unit/net/test_tls_config.py",
    "tls.server.trustCertPath": "unit/net/test_renewal.py",
    "totalReplicas": "unit/app/test_static_roles.py",
    "waitSecondsForService": "unit/namesrv/test_handlers.py",
}


@pytest.fixture(scope="module")
def used() -> Iterator[dict[type[Settings], set[str]]]:
    """Return the fields that a cluster read while it lived through every kind of message."""
    found: dict[type[Settings], set[str]] = defaultdict(set)
    with pytest.MonkeyPatch.context() as patch:
        for cls in CLASSES:
            _watch(cls, found[cls], patch)
        # On a disk that is fuller than diskMaxUsedSpaceRatio some settings are not asked.
        settings = {"enablePropertyFilter": "true", "diskMaxUsedSpaceRatio": "95"}
        with LocalCluster(settings=settings) as cluster:
            cluster.create_topic("orders")
            asyncio.run(_use(cluster))
            asyncio.run(_administer(cluster))
            cluster.advance(hours=1)
            asyncio.run(asyncio.sleep(1.2))  # for the ticks of every server
            cluster.restart(0)
    yield found


def _watch(cls: type[Settings], found: set[str], patch: pytest.MonkeyPatch) -> None:
    names = {one.name for one in settings_of(cls)}

    def read(self: Settings, name: str) -> object:
        if name in names:
            caller = sys._getframe(1)
            module = caller.f_globals.get("__name__", "")
            if not module.startswith(NOT_USES) and caller.f_code.co_name not in CHECKS:
                found.add(name)
        return object.__getattribute__(self, name)

    patch.setattr(cls, "__getattribute__", read, raising=False)


async def _use(cluster: LocalCluster) -> None:
    async with aerobee.Producer(cluster.namesrv, group="shop", on_check=lambda half: None) as producer:
        await producer.send("orders", b"plain", tags="PAID")
        await producer.send("orders", b"level", delay_level=1)
        timed = await producer.send("orders", b"time", delay=3)
        with pytest.raises(aerobee.AerobeeError):
            await producer.cancel(timed)  # recall is off unless it is switched on
        with pytest.raises(RuntimeError):
            async with producer.transaction("orders", b"half"):
                raise RuntimeError
        await producer.send_batch([aerobee.Message("orders", b"one"), aerobee.Message("orders", b"two")])
    came = asyncio.Event()
    consumer = aerobee.PushConsumer(cluster.namesrv, group="billing", consume_from="first")

    @consumer.listener("orders")
    async def handle(message: aerobee.Message) -> None:
        came.set()

    async with consumer:
        await asyncio.wait_for(came.wait(), 30)


async def _administer(cluster: LocalCluster) -> None:
    async with AdminConnection(cluster.namesrv) as admin:
        await messages.find_by_key(admin, "orders", "42")
        await topics.list_topics(admin)
        await topics.delete_topic(admin, "orders")


@pytest.mark.parametrize("cls", CLASSES)
def test_every_setting_is_read_or_says_why_not(cls: type[Settings], used: dict[type[Settings], set[str]]) -> None:
    unused = [one.java for one in settings_of(cls) if one.effect is None and one.name not in used[cls]]
    assert [java for java in unused if java not in SHOWN] == []


def test_what_is_shown_elsewhere_is_shown_there() -> None:
    wrong = [java for java, file in SHOWN.items() if not _names(TESTS / file, java)]
    assert wrong == []


def _names(file: Path, java: str) -> bool:
    """Return whether the test names the setting: by its key, or by its field."""
    fields = [one.name for cls in CLASSES for one in settings_of(cls) if one.java == java]
    return file.is_file() and any(word in file.read_text() for word in (java, *fields))


@pytest.mark.parametrize("cls", CLASSES)
def test_what_has_no_effect_cannot_be_changed_while_running(cls: type[Settings]) -> None:
    assert [one.java for one in settings_of(cls) if one.effect is not None and one.reloadable] == []
