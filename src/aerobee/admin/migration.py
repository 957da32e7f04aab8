"""What a migration asks a running master: who it is, whether it can be followed, and that it takes no more messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aerobee.admin.cluster import runtime_info
from aerobee.admin.connection import AdminConnection
from aerobee.config.properties import decode_text, render_properties
from aerobee.errors import AerobeeError, TransportError
from aerobee.model.numbers import int_or
from aerobee.protocol.bodies.cluster import HARuntimeInfo
from aerobee.protocol.bodies.topics import TopicConfigAndMappingSerializeWrapper
from aerobee.protocol.codes import RequestCode

# Free space that a copy of the log needs, in percent of its size.
_ROOM_PERCENT: Final = 120
_SEGMENT_DEFAULT: Final = 1024 * 1024 * 1024
READ_ONLY: Final = 4
READ_WRITE: Final = 6


class MigrationRefusedError(AerobeeError):
    """A step of a migration is not done, because something would be lost or two brokers would write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterFacts:
    """A master as it describes itself."""

    address: str
    version: str
    name: str
    cluster: str
    broker_id: int
    ha_address: str
    # Whether a controller decides who is master. Then its HA port speaks another protocol.
    controlled: bool
    segment_size: int
    log_start: int
    log_end: int
    permission: int
    settings: Mapping[str, str]

    @property
    def log_bytes(self) -> int:
        return self.log_end - self.log_start


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `stops` means that a migration cannot begin."""

    stops: bool
    text: str


async def master_facts(admin: AdminConnection, address: str, ha_address: str | None = None) -> MasterFacts:
    """Ask the broker at `address`. `ha_address` replaces the HA address that it tells."""
    told = await runtime_info(admin, address)
    answer = await admin.ask(address, RequestCode.GET_BROKER_CONFIG)
    settings = dict(line.split("=", 1) for line in decode_text(answer.body).splitlines() if "=" in line)
    host = address.rpartition(":")[0]
    ha_port = int_or(settings.get("haListenPort", ""), 0)
    return MasterFacts(
        address=address,
        version=told.get("brokerVersionDesc", "?"),
        name=settings.get("brokerName", ""),
        cluster=settings.get("brokerClusterName", ""),
        broker_id=int_or(settings.get("brokerId", "0"), 0),
        ha_address=ha_address or (f"{host}:{ha_port}" if ha_port else ""),
        controlled=settings.get("enableControllerMode", "").strip().lower() == "true",
        segment_size=int_or(settings.get("mappedFileSizeCommitLog", ""), _SEGMENT_DEFAULT),
        log_start=int_or(told.get("commitLogMinOffset", ""), 0),
        log_end=int_or(told.get("commitLogMaxOffset", ""), 0),
        permission=int_or(settings.get("brokerPermission", ""), READ_WRITE),
        settings=settings,
    )


async def check_master(admin: AdminConnection, facts: MasterFacts, free_bytes: int) -> list[Finding]:
    """Look whether a master can be followed and replaced. `free_bytes` is what the new place has."""
    found = [Finding(False, f"broker {facts.name} of cluster {facts.cluster} at {facts.address}, {facts.version}")]
    found += _check_kind(facts)
    needed = facts.log_bytes * _ROOM_PERCENT // 100
    found.append(
        Finding(
            free_bytes < needed,
            f"the log has {facts.log_bytes} bytes, so {needed} are needed, and {free_bytes} are free",
        )
    )
    found += await _check_topics(admin, facts)
    found += await _check_name_servers(admin, facts)
    return found


def _check_kind(facts: MasterFacts) -> list[Finding]:
    settings = {key: value.strip().lower() for key, value in facts.settings.items()}
    found = []
    if facts.broker_id != 0:
        found.append(Finding(True, f"it is a slave (brokerId {facts.broker_id}): name the master's address"))
    if settings.get("enableDLegerCommitLog") == "true":
        found.append(Finding(True, "its log is kept by DLedger, which nobody else can follow"))
    if "rocksdb" in settings.get("storeType", ""):
        found.append(Finding(True, f"its store is kept in RocksDB (storeType={facts.settings['storeType']})"))
    if settings.get("enableLmq") == "true" or settings.get("enableMultiDispatch") == "true":
        found.append(Finding(True, "it has light message queues (enableLmq), which Aerobee does not have"))
    if not facts.ha_address:
        found.append(Finding(True, "it does not tell its HA port: give --ha HOST:PORT"))
    mode = "a controller decides who is master" if facts.controlled else "its role is set by hand"
    found.append(Finding(False, f"{mode}; its log is read from {facts.ha_address}"))
    found.append(Finding(False, f"its segments have {facts.segment_size} bytes (mappedFileSizeCommitLog)"))
    if settings.get("timerWheelEnable") == "true":
        found.append(Finding(False, "timed messages are on: they go on at the new broker, and nothing is repeated"))
    if facts.permission != READ_WRITE:
        found.append(Finding(False, f"it does not take messages now (brokerPermission={facts.permission})"))
    return found


async def _check_topics(admin: AdminConnection, facts: MasterFacts) -> list[Finding]:
    answer = await admin.ask(facts.address, RequestCode.GET_ALL_TOPIC_CONFIG)
    body = TopicConfigAndMappingSerializeWrapper.decode(answer.body)
    found = [Finding(False, f"it has {len(body.topic_config_table)} topics")]
    if body.topic_queue_mapping_detail_map:
        names = ", ".join(sorted(body.topic_queue_mapping_detail_map)[:5])
        found.append(Finding(True, f"it has static topics, which Aerobee does not have: {names}"))
    for name, config in sorted(body.topic_config_table.items()):
        for key, value in (("cleanup.policy", "COMPACTION"), ("queue.type", "BatchCQ")):
            if config.attributes.get(key) == value:
                found.append(Finding(True, f"topic {name} has {key}={value}, which Aerobee does not have"))
    return found


async def _check_name_servers(admin: AdminConnection, facts: MasterFacts) -> list[Finding]:
    found = []
    theirs = [one.strip() for one in facts.settings.get("namesrvAddr", "").split(";") if one.strip()]
    for address in dict.fromkeys((*admin.namesrvs, *theirs)):
        try:
            await admin.ask(address, RequestCode.GET_BROKER_CLUSTER_INFO)
        except TransportError as error:
            found.append(Finding(True, f"name server {address} does not answer: {error.message}"))
    missing = [one for one in theirs if one not in admin.namesrvs]
    if missing:
        found.append(
            Finding(False, f"it registers with {'; '.join(missing)}, too: give the new broker the same namesrvAddr")
        )
    if not found:
        found.append(Finding(False, f"every name server answers: {'; '.join(admin.namesrvs)}"))
    return found


async def take_messages(admin: AdminConnection, address: str, *, until_ms: int | None = None) -> None:
    """Let a broker take messages; with `until_ms` refuse them until that time, and serve only what it has.

    The permission is told to name servers, and producers learn of it within half a minute. Apache's broker itself does
    not ask it for ordinary topics, so it is also told when to begin to take messages: it refuses them at once then, and
    Java's producers try another broker. RocketMQ: BrokerConfig.startAcceptSendRequestTimeStamp.
    """
    permission = READ_WRITE if until_ms is None else READ_ONLY
    values = {"brokerPermission": str(permission), "startAcceptSendRequestTimeStamp": str(until_ms or 0)}
    await admin.ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=render_properties(values).encode())


async def log_end_of(admin: AdminConnection, address: str) -> int:
    """Return where the log of a broker ends."""
    return int_or((await runtime_info(admin, address)).get("commitLogMaxOffset", ""), 0)


async def replication_of(admin: AdminConnection, address: str) -> HARuntimeInfo:
    """Return the slaves of a master as it sees them."""
    return HARuntimeInfo.decode((await admin.ask(address, RequestCode.GET_BROKER_HA_STATUS)).body)


async def answers(admin: AdminConnection, address: str) -> bool:
    """Tell whether a broker still answers."""
    try:
        await runtime_info(admin, address)
    except TransportError:
        return False
    except AerobeeError:
        return True
    return True
