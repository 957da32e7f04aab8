"""mqadmin's sub-commands about brokers, clusters and name servers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final

from aerobee.admin.cluster import runtime_info
from aerobee.cli.mqadmin.printed import in_map_order, local, millis_text, rounded, truth
from aerobee.cli.mqadmin.tool import Tool, commands_of, cut, opts, row, sub_command
from aerobee.cli.mqadmin.topics import groups_of
from aerobee.client.producer import Producer
from aerobee.config.properties import decode_text, parse_properties, render_properties
from aerobee.errors import AerobeeError, InvalidArgumentError
from aerobee.model.names import DLQ_PREFIX, RETRY_PREFIX
from aerobee.model.numbers import NumberError, int_or, parse_float
from aerobee.model.route import BrokerData
from aerobee.protocol.bodies.cluster import BrokerStatsData, HARuntimeInfo
from aerobee.protocol.bodies.offsets import ConsumeStats
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.cluster import ViewBrokerStatsDataRequestHeader
from aerobee.protocol.headers.kv import DeleteKVConfigRequestHeader, PutKVConfigRequestHeader
from aerobee.protocol.headers.route import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from aerobee.protocol.javaorder import properties_order
from aerobee.runtime.clock import SystemClock

_PLACE = ("b brokerAddr Broker address", "c cluster clustername")
_PAIR = "%-50s=  %s"


# -- settings


@sub_command(
    "updateBrokerConfig",
    "Update broker's config.",
    *opts(
        "b brokerAddr update which broker",
        "c clusterName update which cluster",
        "a updateAllBroker update all brokers include slave",
        "!k key config key",
        "!v value config value",
    ),
)
async def update_broker_config(tool: Tool) -> None:
    given = tool.given
    body = render_properties({given.text("k"): given.text("v")}).encode()
    if given.has("b"):
        address = given.text("b")
        await tool.admin.ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)
        tool.line(f"update broker config success, {address}")
    elif given.has("c"):
        cluster = given.text("c")
        for address in await (tool.members_of(cluster) if given.has("a") else tool.masters_of(cluster)):
            try:
                await tool.admin.ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)
                tool.line(f"update broker config success, {address}")
            except AerobeeError as error:
                tool.went_wrong(error)
    else:
        raise InvalidArgumentError("name a broker with -b or a cluster with -c")


async def _settings(tool: Tool, address: str, head: str) -> None:
    tool.line(head)
    answer = await tool.admin.ask(address, RequestCode.GET_BROKER_CONFIG)
    _print_properties(tool, answer.body)
    tool.line()


def _print_properties(tool: Tool, body: bytes) -> None:
    found = parse_properties(decode_text(body))
    for name in properties_order(list(found)):
        tool.line(row(_PAIR, name, found[name]))


@sub_command(
    "getBrokerConfig",
    "Get broker config by cluster or special broker.",
    *opts("/b brokerAddr get which broker", "/c clusterName get which cluster"),
)
async def get_broker_config(tool: Tool) -> None:
    if tool.given.has("b"):
        address = tool.given.text("b")
        await _settings(tool, address, f"============{address}============")
        return
    for master, slaves in (await tool.groups_of(tool.given.text("c"))).items():
        name = master or "NO_MASTER"
        if master is None:
            tool.line("============Master: NO_MASTER============")
        else:
            await _settings(tool, master, f"============Master: {master}============")
        for slave in slaves:
            await _settings(tool, slave, f"============My Master: {name}=====Slave: {slave}============")


def _namesrvs(tool: Tool) -> Sequence[str]:
    return tool.admin.namesrvs


@sub_command("getNamesrvConfig", "Get configs of name server.")
async def get_namesrv_config(tool: Tool) -> None:
    answers = {one: (await tool.admin.ask(one, RequestCode.GET_NAMESRV_CONFIG)).body for one in _namesrvs(tool)}
    for address in in_map_order(answers):
        tool.line(f"============{address}============")
        _print_properties(tool, answers[address])


@sub_command(
    "updateNamesrvConfig",
    "Update configs of name server.",
    *opts("!k key config key", "!v value config value"),
)
async def update_namesrv_config(tool: Tool) -> None:
    key, value = tool.given.text("k"), tool.given.text("v")
    body = render_properties({key: value}).encode()
    for address in _namesrvs(tool):
        await tool.admin.ask(address, RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
    shown = f"[{', '.join(_namesrvs(tool))}]" if tool.given.has("n") else ""
    tool.line(f"update name server config success!{shown}")
    tool.line(f"{key} : {value}")


@sub_command(
    "updateKvConfig",
    "Create or update KV config.",
    *opts("!s namespace set the namespace", "!k key set the key name", "!v value set the key value"),
)
async def update_kv_config(tool: Tool) -> None:
    given = tool.given
    header = PutKVConfigRequestHeader(namespace=given.text("s"), key=given.text("k"), value=given.text("v"))
    await tool.admin.ask_namesrvs(RequestCode.PUT_KV_CONFIG, header)
    tool.line("create or update kv config to namespace success.")


@sub_command("deleteKvConfig", "Delete KV config.", *opts("!s namespace set the namespace", "!k key set the key name"))
async def delete_kv_config(tool: Tool) -> None:
    header = DeleteKVConfigRequestHeader(namespace=tool.given.text("s"), key=tool.given.text("k"))
    await tool.admin.ask_namesrvs(RequestCode.DELETE_KV_CONFIG, header)
    tool.line("delete kv config from namespace success.")


# -- writing


@sub_command(
    "wipeWritePerm",
    "Wipe write perm of broker in all name server you defined in the -n param.",
    *opts("!b brokerName broker name"),
)
async def wipe_write_perm(tool: Tool) -> None:
    name = tool.given.text("b")
    header = WipeWritePermOfBrokerRequestHeader(broker_name=name)
    for address in _namesrvs(tool):
        where = f"wipe write perm of broker[{name}] in name server[{address}]"
        try:
            answer = await tool.admin.ask(address, RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
            count = decode_header(WipeWritePermOfBrokerResponseHeader, answer).wipe_topic_count
            tool.line(f"{where} OK, {count}")
        except AerobeeError as error:
            tool.line(f"{where} Failed")
            tool.went_wrong(error)


@sub_command(
    "addWritePerm",
    "Add write perm of broker in all name server you defined in the -n param.",
    *opts("!b brokerName broker name"),
)
async def add_write_perm(tool: Tool) -> None:
    name = tool.given.text("b")
    header = AddWritePermOfBrokerRequestHeader(broker_name=name)
    for address in _namesrvs(tool):
        where = f"add write perm of broker[{name}] in name server[{address}]"
        try:
            answer = await tool.admin.ask(address, RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
            count = decode_header(AddWritePermOfBrokerResponseHeader, answer).add_topic_count
            tool.line(f"{where} OK, {count}")
        except AerobeeError as error:
            tool.line(f"{where} Failed")
            tool.went_wrong(error)


# -- state


@sub_command(
    "brokerStatus",
    "Fetch broker runtime status data.",
    *opts("/b brokerAddr Broker address", "/c clusterName which cluster"),
)
async def broker_status(tool: Tool) -> None:
    if tool.given.has("b"):
        for name, value in sorted((await runtime_info(tool.admin, tool.given.text("b"))).items()):
            tool.line(row("%-32s: %s", name, value))
        return
    for address in await tool.members_of(tool.given.text("c")):
        try:
            info = await runtime_info(tool.admin, address)
        except AerobeeError as error:
            tool.went_wrong(error)
            continue
        for name, value in sorted(info.items()):
            tool.line(row("%-24s %-32s: %s", address, name, value))


async def _clean(tool: Tool, code: int) -> None:
    """Ask one broker, those of a cluster, or all. `false` is printed where nobody was asked, as Apache does."""
    if tool.given.has("b"):
        addresses = [tool.given.text("b")]
    elif tool.given.has("c"):
        names = (await tool.cluster_info()).cluster_addr_table.get(tool.given.text("c"), ())
        table = (await tool.cluster_info()).broker_addr_table
        addresses = [address for name in names for address in table[name].broker_addrs.values() if name in table]
    else:
        table = (await tool.cluster_info()).broker_addr_table
        addresses = [address for data in table.values() for address in data.broker_addrs.values()]
    for address in addresses:
        await tool.admin.ask(address, code)
    if addresses:
        tool.say("success")
    else:
        tool.fail("false")


@sub_command("cleanExpiredCQ", "Clean expired ConsumeQueue on broker.", *opts(*_PLACE))
async def clean_expired_cq(tool: Tool) -> None:
    await _clean(tool, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)


@sub_command("deleteExpiredCommitLog", "Delete expired CommitLog files.", *opts(*_PLACE))
async def delete_expired_commit_log(tool: Tool) -> None:
    await _clean(tool, RequestCode.DELETE_EXPIRED_COMMITLOG)


@sub_command(
    "cleanUnusedTopic",
    "Clean unused topic on broker.",
    *opts("b brokerAddr Broker address", "c cluster cluster name"),
)
async def clean_unused_topic(tool: Tool) -> None:
    await _clean(tool, RequestCode.CLEAN_UNUSED_TOPIC)


# -- clusters


@sub_command(
    "clusterList",
    "List cluster infos.",
    *opts(
        "+m moreStats Print more stats",
        "i interval specify intervals numbers, it is in seconds",
        "c clusterName which cluster",
    ),
)
async def cluster_list(tool: Tool) -> None:
    pause_s = tool.given.number("i", 0)
    while True:
        info = await tool.cluster_info()
        clusters = [tool.given.text("c")] if tool.given.text("c") else in_map_order(info.cluster_addr_table)
        held = [
            (cluster, info.broker_addr_table[name])
            for cluster in clusters
            for name in sorted(info.cluster_addr_table.get(cluster, ()))
            if name in info.broker_addr_table
        ]
        await (_more_of_clusters if tool.given.has("m") else _base_of_clusters)(tool, held)
        if not tool.given.has("i"):
            return
        await asyncio.sleep(pause_s)


async def _more_of_clusters(tool: Tool, held: Sequence[tuple[str, BrokerData]]) -> None:
    layout = "%-16s  %-32s %14s %14s %14s %14s"
    heads = ("#Cluster Name", "#Broker Name", "#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday")
    tool.line(row(layout, *heads))
    for cluster, data in held:
        for _, address in sorted(data.broker_addrs.items()):
            info: Mapping[str, str] = {}
            try:
                info = await runtime_info(tool.admin, address)
            except AerobeeError as error:
                tool.went_wrong(error)
            totals = [
                int_or(info.get(f"msg{way}Total{end}"), 0) - int_or(info.get(f"msg{way}Total{start}"), 0)
                for start, end in (("YesterdayMorning", "TodayMorning"), ("TodayMorning", "TodayNow"))
                for way in ("Put", "Get")
            ]
            tool.line(row(layout, cluster, data.broker_name, *totals))


_BASE = "%-22s  %-22s  %-4s  %-22s %-16s  %16s  %30s  %-22s  %{pc}s  %-12s  %-8s  %{active}s"


async def _base_of_clusters(tool: Tool, held: Sequence[tuple[str, BrokerData]]) -> None:
    heads = (
        "#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version", "#InTPS(LOAD)", "#OutTPS(LOAD)",
        "#Timer(Progress)", "#PCWait(ms)", "#Hour", "#SPACE", "#ACTIVATED",
    )  # fmt: skip
    tool.line(row(_BASE.format(pc="-11", active="-10"), *heads))
    for cluster, data in held:
        for number, address in sorted(data.broker_addrs.items()):
            info: Mapping[str, str] = {}
            try:
                info = await runtime_info(tool.admin, address)
            except AerobeeError as error:
                tool.went_wrong(error)
            values = _base_values(info)
            tool.line(row(_BASE.format(pc="11", active="10"), cluster, data.broker_name, number, address, *values))


def _base_values(info: Mapping[str, str]) -> tuple[str, ...]:
    def told(key: str, default: str = "null") -> str:
        return info.get(key, default) if info else ""

    def tps(key: str) -> str:
        return rounded(_number(info.get(key, "")), 1)

    send = f"({told('sendThreadPoolQueueSize')},{told('sendThreadPoolQueueHeadWaitTimeMills')}ms)"
    pull = (
        f"({told('pullThreadPoolQueueSize')},{told('pullThreadPoolQueueHeadWaitTimeMills')}ms|"
        f"{told('ackThreadPoolQueueSize', 'N')},{told('ackThreadPoolQueueHeadWaitTimeMills', 'N')}ms)"
    )
    timer = (
        f"{int_or(info.get('timerReadBehind'), 0)}-{int_or(info.get('timerOffsetBehind'), 0)}"
        f"({rounded(int_or(info.get('timerCongestNum'), 0) / 10000, 1)}w, "
        f"{tps('timerEnqueueTps')}, {tps('timerDequeueTps')})"
    )
    earliest = int_or(info.get("earliestMessageTimeStamp"), None)
    hours = 0.0 if earliest is None else (SystemClock().now_ms() - earliest) / 3_600_000
    return (
        told("brokerVersionDesc"),
        rounded(_number(info.get("putTps", "")), 2).rjust(9) + send,
        rounded(_number(info.get("getTransferredTps", "")), 2).rjust(9) + pull,
        timer,
        told("pageCacheLockTimeMills"),
        rounded(hours, 2),
        rounded(_number(info.get("commitLogDiskRatio", "")), 4),
        truth(info.get("brokerActive", "").lower() == "true"),
    )


def _number(text: str) -> float:
    """Return the first of several numbers, or 0."""
    with contextlib.suppress(NumberError):
        return parse_float(text.split(" ")[0])
    return 0.0


@sub_command(
    "clusterRT",
    "List All clusters Message Send RT.",
    *opts(
        "a amount message amount | default 100",
        "s size message size | default 128 Byte",
        "c cluster cluster name | default display all cluster",
        "p print_log print as tlog | default false",
        "m machine_room machine room name | default noname",
        "i interval print interval | default 10 seconds",
    ),
)
async def cluster_rt(tool: Tool) -> None:
    """Measure sends until it is interrupted, as Apache's does. An interval of 0 measures once, which is our own."""
    given = tool.given
    amount, size, pause_s = given.number("a", 100), given.number("s", 128), given.number("i", 10)
    if amount < 2 or size < 1 or size > 1 << 22:
        raise InvalidArgumentError("-a must be 2 or more, and -s between 1 and 4194304")
    table = (await tool.cluster_info()).cluster_addr_table
    clusters = [given.text("c")] if given.has("c") else in_map_order(table)
    if not given.truth("p"):
        heads = ("#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount")
        tool.line(row("%-24s  %-24s  %-4s  %-8s  %-8s", *heads))
    async with Producer(tool.admin.namesrvs, group="TOOLS_PRODUCER", **tool.admin.client_options) as producer:
        while True:
            for cluster in clusters:
                if cluster not in table:
                    tool.fail(f"cluster [{cluster}] not exist")
                    return
                for name in in_map_order(table[cluster]):
                    await _measure(tool, producer, cluster, name, amount, b"a" * size)
            if pause_s <= 0:
                return
            await asyncio.sleep(pause_s)


async def _measure(tool: Tool, producer: Producer, cluster: str, name: str, amount: int, body: bytes) -> None:
    clock = SystemClock()
    sent = failed = 0
    elapsed_s = 0.0
    for index in range(amount):
        start_s = clock.monotonic()
        try:
            await producer.send(name, body)
            sent += 1
        except AerobeeError:
            failed += 1
        if index:
            elapsed_s += clock.monotonic() - start_s
    tool.failed = tool.failed or failed > 0
    mean_ms = elapsed_s * 1000 / (amount - 1)
    if tool.given.truth("p"):
        now = f"{local(clock.now_ms()):%Y-%m-%d %H:%M:%S}"
        room = tool.given.text("m", "noname")
        tool.line(f"{now}|{room}|{cluster}|{name}|{rounded(mean_ms, 0)}")
    else:
        tool.line(row("%-24s  %-24s  %-8s  %-16s  %-16s", cluster, name, rounded(mean_ms, 2), sent, failed))


# -- statistics


@sub_command(
    "statsAll",
    "Topic and Consumer tps stats.",
    *opts("+a activeTopic print active topic only", "t topic print select topic only"),
)
async def stats_all(tool: Tool) -> None:
    heads = ("#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour", "#OutMsg24Hour")
    tool.line(row("%-64s  %-64s %12s %11s %11s %14s %14s", *heads))
    chosen = tool.given.text("t")
    for topic in await tool.topics():
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or (chosen and topic != chosen):
            continue
        with contextlib.suppress(AerobeeError):
            await _stats_of(tool, topic)


async def _stats_of(tool: Tool, topic: str) -> None:
    masters = [data.master for data in (await tool.route(topic)).broker_datas if data.master is not None]
    groups = await groups_of(tool, topic)
    in_rate, in_day = await _stats(tool, masters, "TOPIC_PUT_NUMS", topic)
    only_active = tool.given.has("a")
    for group in groups:
        out_rate, out_day = await _stats(tool, masters, "GROUP_GET_NUMS", f"{topic}@{group}")
        backlog = await _backlog(tool, group, topic)
        if not only_active or in_day > 0 or out_day > 0:
            tool.line(
                row("%-64s  %-64s %12d %11s %11s %14d %14d", cut(topic, 64), cut(group, 64), backlog,
                    rounded(in_rate, 2), rounded(out_rate, 2), in_day, out_day)
            )  # fmt: skip
    if not groups and (not only_active or in_day > 0):
        tool.line(
            row("%-64s  %-64s %12d %11s %11s %14d %14s", cut(topic, 64), "", 0, rounded(in_rate, 2), "", in_day,
                "NO_CONSUMER")
        )  # fmt: skip


async def _stats(tool: Tool, masters: Sequence[str], name: str, key: str) -> tuple[float, int]:
    rate, day = 0.0, 0
    for address in masters:
        with contextlib.suppress(AerobeeError):
            header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
            body = (await tool.admin.ask(address, RequestCode.VIEW_BROKER_STATS_DATA, header)).body
            found = BrokerStatsData.decode(body)
            rate += found.stats_minute.tps if found.stats_minute else 0.0
            sums = [one.sum for one in (found.stats_day, found.stats_hour, found.stats_minute) if one is not None]
            day += next((one for one in sums if one), 0)
    return rate, day


async def _backlog(tool: Tool, group: str, topic: str) -> int:
    from aerobee.cli.mqadmin.groups import examine

    stats: ConsumeStats | None = None
    with contextlib.suppress(AerobeeError):
        stats = await examine(tool, group, topic)
    return max(0, stats.diff_total) if stats is not None else 0


@sub_command(
    "haStatus",
    "Fetch ha runtime status data.",
    *opts(
        "c clusterName which cluster",
        "b brokerAddr which broker to fetch",
        "i interval the interval(second) of get info",
    ),
)
async def ha_status(tool: Tool) -> None:
    given = tool.given
    if not given.has("b") and not given.has("c"):
        raise InvalidArgumentError("name a broker with -b or a cluster with -c")
    while True:
        for address in [given.text("b")] if given.has("b") else await tool.masters_of(given.text("c")):
            answer = await tool.admin.ask(address, RequestCode.GET_BROKER_HA_STATUS)
            _print_ha(tool, address, HARuntimeInfo.decode(answer.body))
        if not given.has("i"):
            return
        await asyncio.sleep(given.number("i", 3))


def _print_ha(tool: Tool, address: str, info: HARuntimeInfo) -> None:
    if not info.master:
        one = info.ha_client_runtime_info
        tool.line(f"\n#MasterAddr\t{one.master_addr}")
        tool.line(f"#CommitLogMaxOffset\t{one.max_offset}")
        tool.line(f"#TransferSpeed(KB/s)\t{rounded(one.transferred_byte_in_second / 1024, 2)}")
        tool.line(f"#LastReadTime\t{millis_text(one.last_read_timestamp)}")
        tool.line(f"#LastWriteTime\t{millis_text(one.last_write_timestamp)}")
        tool.line(f"#MasterFlushOffset\t{one.master_flush_offset}")
        return
    tool.line(f"\n#MasterAddr\t{address}")
    tool.line(f"#MasterCommitLogMaxOffset\t{info.master_commit_log_max_offset}")
    tool.line(f"#SlaveNum\t{len(info.ha_connection_info)}")
    tool.line(f"#InSyncSlaveNum\t{info.in_sync_slave_nums}")
    heads = ("#SlaveAddr", "#SlaveAckOffset", "#Diff", "#TransferSpeed(KB/s)", "#Status", "#TransferFromWhere")
    tool.line(row("%-32s  %-16s %16s %16s %16s %16s", *heads))
    for slave in info.ha_connection_info:
        tool.line(
            row("%-32s  %-16d %16d %16s %16s %16d", slave.addr, slave.slave_ack_offset, slave.diff,
                rounded(slave.transferred_byte_in_second / 1024, 2), "OK" if slave.in_sync else "Fall Behind",
                slave.transfer_from_where)
        )  # fmt: skip


COMMANDS: Final = commands_of(
    update_broker_config,
    get_broker_config,
    get_namesrv_config,
    update_namesrv_config,
    update_kv_config,
    delete_kv_config,
    wipe_write_perm,
    add_write_perm,
    broker_status,
    clean_expired_cq,
    delete_expired_commit_log,
    clean_unused_topic,
    cluster_list,
    cluster_rt,
    stats_all,
    ha_status,
)
