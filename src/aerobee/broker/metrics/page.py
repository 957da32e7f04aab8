"""The metrics of a broker as text, a piece at a time, so that a page of many topics never holds the loop for long.

The first families are Apache's, with its names, types and labels; those that begin with `aerobee_` are ours. Everything
comes from numbers that the broker keeps anyway. RocketMQ: BrokerMetricsManager, DefaultStoreMetricsManager.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from aerobee.broker.batches import Batches
from aerobee.broker.delay import TimerService
from aerobee.broker.flowcontrol import CountedLag
from aerobee.broker.log import SIZE_BOUNDS, PutCounts
from aerobee.broker.metrics.lag import Backlog, LagTable
from aerobee.broker.rpctimes import BOUNDS_MS, LATER, ONEWAY, RpcTimes
from aerobee.broker.send import SendHandler
from aerobee.broker.state import BrokerState
from aerobee.broker.stats import GROUP_GET_NUMS, GROUP_GET_SIZE, SNDBCK2DLQ_TIMES, TOPIC_PUT_NUMS, TOPIC_PUT_SIZE
from aerobee.broker.transactions import Half, Transactions
from aerobee.model.names import HALF_TOPIC, SCHEDULE_TOPIC, SYSTEM_GROUP_PREFIX, TIMER_TOPIC
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.store.recordhead import HEAD_SIZE, head_of
from aerobee.telemetry.metrics import ALL, OTHER, Histogram, escaped, family, histogram_family, labels_of

_CREATE_BOUNDS_MS: Final = (10, 100, 1000, 3000, 5000)
# The types of system topics; other topics have theirs among their attributes.
_TYPES: Final = {HALF_TOPIC: "transaction", SCHEDULE_TOPIC: "delay", TIMER_TOPIC: "delay"}
_PROCESSORS: Final = (
    "send", "async_put", "pull", "ack", "query_message", "client_manager", "heartbeat", "lite_pull", "transaction",
    "consumer_manager", "admin", "reply",
)  # fmt: skip
_REQUESTS: Final = {code: name.lower() for name, code in vars(RequestCode).items() if isinstance(code, int)}
_ANSWERS: Final = {code: name.lower() for name, code in vars(ResponseCode).items() if isinstance(code, int)}
_ANSWERS.update({LATER: "later", ONEWAY: "none"})
# Places in Apache's list of versions, which from there on has a snapshot and a release of each number.
_V4_0_0_SNAPSHOT: Final = 212
_V6_0_0_SNAPSHOT: Final = 612
_BUSY: Final = ResponseCode.SYSTEM_BUSY


@dataclass(frozen=True, slots=True)
class Measured:
    """The features of a broker that metrics tell about."""

    counts: PutCounts
    times: RpcTimes
    lag: CountedLag
    groups: LagTable
    transactions: Transactions
    timers: TimerService
    batches: Batches
    sends: SendHandler
    failures: Callable[[], int]
    archived_to: Callable[[], int | None]


@dataclass(slots=True)
class Outside:
    """What the root of the process knows."""

    version: str = ""
    connections: Callable[[], int] = lambda: 0
    # Why clients should not be sent here; see `Health`.
    reasons: Callable[[], list[str]] = list
    # When each certificate in use ends, in seconds since 1970, by its file.
    certificates: Callable[[], dict[str, float]] = dict
    # Families of others in this process.
    more: list[Callable[[], Iterator[str]]] = field(default_factory=list)


class BrokerMetrics:
    """Makes the page."""

    def __init__(self, state: BrokerState, parts: Measured, labels: dict[str, str], limit: int) -> None:
        self._state = state
        self._parts = parts
        self._limit = limit
        config = state.config
        base = {**labels, "cluster": config.cluster_name, "node_type": "broker", "node_id": state.name}
        self._base = labels_of(base)
        self._store_labels = f'{self._base},storage_type="local",storage_medium="disk"'
        # Labels by topic and by topic and group: most of the page's text.
        self._texts: dict[tuple[str, str], str] = {}
        self.outside = Outside()

    def page(self) -> Iterator[str]:
        """Yield the text in pieces of a fraction of a millisecond."""
        groups = self._parts.groups.asked()
        if len(self._texts) > 4 * self._limit:
            self._texts.clear()
        yield from self._broker()
        yield from self._incoming()
        yield from self._outgoing()
        yield from self._clients()
        yield from self._lag(groups)
        yield from self._rpc()
        yield from self._storage()
        yield from self._features()
        yield from self._own()
        for more in self.outside.more:
            yield from more()

    # -- labels

    def _labels(self, **pairs: str) -> str:
        return f"{self._base},{labels_of(pairs)}"

    def _is_system(self, topic: str, group: str = "") -> str:
        system = self._state.catalog.topic_rules.is_system(topic) or group.upper().startswith(SYSTEM_GROUP_PREFIX)
        return "true" if system else "false"

    def _topic_text(self, topic: str) -> str:
        config = self._state.catalog.find(topic)
        kind = _TYPES.get(topic) or (config.attributes.get("message.type", "") if config is not None else "")
        return self._labels(topic=topic, message_type=kind.lower() or "normal", is_system=self._is_system(topic))

    def _pair_text(self, topic: str, group: str) -> str:
        text = self._texts.get((topic, group))
        if text is None:
            text = self._labels(topic=topic, consumer_group=group, is_system=self._is_system(topic, group))
            self._texts[topic, group] = text
        return text

    # -- families

    def _broker(self) -> Iterator[str]:
        state, base = self._state, self._base
        waiting = {"send": state.flow.sends.count}
        yield from family(
            "rocketmq_processor_watermark", "gauge", "Request processor watermark",
            ((f'{base},processor="{one}"', waiting.get(one, 0)) for one in _PROCESSORS),
        )  # fmt: skip
        for name, words, value in (
            ("broker_permission", "Broker permission", state.config.broker_permission),
            ("topic_number", "Active topic number", len(state.catalog.topic_table.topics)),
            ("consumer_group_number", "Active subscription group number", len(state.catalog.group_table.groups)),
        ):
            yield from family(f"rocketmq_{name}", "gauge", words, [(base, value)])

    def _incoming(self) -> Iterator[str]:
        for name, words, stat in (
            ("messages_in_total", "Total number of incoming messages", TOPIC_PUT_NUMS),
            ("throughput_in_total", "Total traffic of incoming messages", TOPIC_PUT_SIZE),
        ):
            totals = self._state.stats.totals(stat)
            kept = _largest(totals, self._limit)
            series = ((self._topic_text(topic), value) for topic, value in totals if topic in kept)
            rest = sum(value for topic, value in totals if topic not in kept)
            yield from family(f"rocketmq_{name}", "counter", words, _and_rest(series, self._rest_text(), rest))
        yield from histogram_family("rocketmq_message_size", "Incoming messages size", self._sizes())

    def _rest_text(self) -> str:
        return self._labels(topic=OTHER, message_type="normal", is_system="false")

    def _sizes(self) -> Iterator[tuple[str, Histogram]]:
        sizes, stats = self._parts.counts.sizes, self._state.stats
        for number, (topic, counts) in enumerate(list(sizes.items())):
            if number >= self._limit:
                return
            total = stats.total(TOPIC_PUT_SIZE, topic)
            if not total:
                # Its counters were forgotten: the topic was deleted.
                sizes.pop(topic, None)
                continue
            yield self._topic_text(topic), Histogram(SIZE_BOUNDS, counts, total)

    def _outgoing(self) -> Iterator[str]:
        for name, words, stat in (
            ("messages_out_total", "Total number of outgoing messages", GROUP_GET_NUMS),
            ("throughput_out_total", "Total traffic of outgoing messages", GROUP_GET_SIZE),
        ):
            totals = self._state.stats.totals(stat)
            kept = _largest(totals, self._limit)
            rest = sum(value for key, value in totals if key not in kept)
            other = self._labels(topic=OTHER, consumer_group=OTHER, is_system="false")
            series = ((self._key_text(key), value) for key, value in totals if key in kept)
            yield from family(f"rocketmq_{name}", "counter", words, _and_rest(series, other, rest))
        yield from family(
            "rocketmq_send_to_dlq_messages_total", "counter", "Consumer send to DLQ messages", self._dead_letters()
        )

    def _key_text(self, key: str) -> str:
        topic, _, group = key.partition("@")
        return self._pair_text(topic, group)

    def _dead_letters(self) -> Iterator[tuple[str, float]]:
        found: Counter[tuple[str, str]] = Counter()
        for key, value in self._state.stats.totals(SNDBCK2DLQ_TIMES):
            parts = key.split("@")
            if len(parts) == 4:
                found[parts[1], parts[2]] += value
        for (topic, group), value in found.items():
            yield self._pair_text(topic, group), value

    def _clients(self) -> Iterator[str]:
        clients = self._state.clients
        producers: Counter[str] = Counter()
        for number, members in enumerate(list(clients.producers().values())):
            if number % 50 == 49:
                yield ""
            for one in members.values():
                producers[self._client_text(one.client.language, one.client.version)] += 1
        yield from family("rocketmq_producer_connections", "gauge", "Producer connections", producers.items())
        consumers: Counter[str] = Counter()
        for number, (name, group) in enumerate(list(clients.groups().items())):
            if number % 50 == 49:
                yield ""
            mode = "pull" if group.consume_type == "CONSUME_ACTIVELY" else "push"
            more = labels_of({"consumer_group": name, "consume_mode": mode, "is_system": self._is_system("", name)})
            for one in group.members.values():
                consumers[f"{self._client_text(one.client.language, one.client.version)},{more}"] += 1
        yield from family("rocketmq_consumer_connections", "gauge", "Consumer connections", consumers.items())

    def _client_text(self, language: str, version: int) -> str:
        return self._labels(language=language.lower(), version=version_name(version), protocol_type="remoting")

    def _lag(self, groups: tuple[Backlog, ...]) -> Iterator[str]:
        now_ms = self._state.clock.now_ms()
        groups = (
            tuple(heapq.nlargest(self._limit, groups, key=lambda one: one.lag)) if len(groups) > self._limit else groups
        )

        def age(at_ms: int) -> int:
            return max(0, now_ms - at_ms) if at_ms else 0

        for name, words, value in (
            ("lag_messages", "Consumer lag messages", lambda one: one.lag),
            ("lag_latency_milliseconds", "Consumer lag time", lambda one: age(one.unconsumed_ms)),
            ("inflight_messages", "Consumer inflight messages", lambda one: one.inflight),
            ("queueing_latency_milliseconds", "Consumer queueing time", lambda one: age(one.unpulled_ms)),
            ("ready_messages", "Consumer ready messages", lambda one: one.ready),
        ):
            yield from family(
                f"rocketmq_consumer_{name}", "gauge", words,
                ((f'{self._pair_text(one.topic, one.group)},is_retry="false"', value(one)) for one in groups),
            )  # fmt: skip

    def _rpc(self) -> Iterator[str]:
        self._parts.times.settle()
        times = list(self._parts.times.table.values())

        def series() -> Iterator[tuple[str, Histogram]]:
            for one in times[: self._limit]:
                labels = self._labels(
                    protocol_type="remoting",
                    request_code=_REQUESTS.get(one.request, str(one.request)),
                    response_code=_ANSWERS.get(one.answer, str(one.answer)),
                    is_long_polling="true" if one.long_polling else "false",
                    result="oneway" if one.answer == ONEWAY else "success",
                )
                yield labels, Histogram(BOUNDS_MS, one.counts, one.total_ms)

        yield from histogram_family("rocketmq_rpc_latency_milliseconds", "Rpc latency", series())
        for name, words, request in (
            ("topic_create", "The distribution of create topic time", RequestCode.UPDATE_AND_CREATE_TOPIC),
            (
                "consumer_group_create",
                "The distribution of create subscription time",
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            ),
        ):
            found = [one for one in times if one.request == request]
            yield from histogram_family(
                f"rocketmq_{name}_execution_time_milliseconds", words,
                ((self._created(one.answer), _in_classes(one.counts, one.total_ms)) for one in found),
            )  # fmt: skip
        busy = Counter({one.request: 0 for one in times})
        for one in times:
            if one.answer == _BUSY:
                busy[one.request] += sum(one.counts)
        yield from family(
            "aerobee_busy_answers_total", "counter", "Requests that were refused because the broker was busy",
            ((self._labels(request_code=_REQUESTS.get(code, str(code))), count) for code, count in busy.items()),
        )  # fmt: skip

    def _created(self, answer: int) -> str:
        status = "success" if answer in (0, LATER) else "failure"
        return self._labels(invocation_status=status, is_system="false")

    def _storage(self) -> Iterator[str]:
        store, now_ms = self._state.store, self._state.clock.now_ms()
        head = head_of(store.read_log(store.log_start, HEAD_SIZE))
        total, free = store.disk.space(store.root)
        for name, words, value in (
            ("size_bytes", "Broker storage size", total - free),
            ("flush_behind_bytes", "Broker flush behind bytes", store.log_end - store.flushed_offset),
            (
                "dispatch_behind_bytes",
                "Broker dispatch behind bytes",
                max(0, store.confirmed_offset - store.dispatched_offset),
            ),
            (
                "message_reserve_time_milliseconds",
                "Broker message reserve time",
                0 if head is None else max(0, now_ms - head.store_timestamp),
            ),
        ):
            yield from family(f"rocketmq_storage_{name}", "gauge", words, [(self._store_labels, value)])

    def _features(self) -> Iterator[str]:
        parts, base = self._parts, self._base
        ends = list(parts.transactions.ends.items())
        for name, is_commit in (("commit", True), ("rollback", False)):
            yield from family(
                f"rocketmq_{name}_messages_total", "counter", f"Total number of {name} messages",
                ((f'{base},topic="{escaped(topic)}"', n) for (committed, topic), n in ends if committed is is_commit),
            )  # fmt: skip
        # A half message that waits is known by its place. Its topic stands in the log only.
        yield from family(
            "rocketmq_half_messages", "gauge", "Half messages of all topics",
            [(f'{base},topic="{ALL}"', parts.transactions.pending)],
        )  # fmt: skip
        yield from family("aerobee_timers_pending", "gauge", "Timed messages that wait", [(base, parts.timers.pending)])
        yield from family(
            "aerobee_timers_delivered_total", "counter", "Timed messages that were delivered",
            [(base, parts.timers.delivered)],
        )  # fmt: skip

    def _own(self) -> Iterator[str]:
        state, parts, base, outside = self._state, self._parts, self._base, self.outside
        store, now_ms = state.store, state.clock.now_ms()
        lag = Histogram(parts.lag.BOUNDS_S, parts.lag.counts, parts.lag.total_s)
        yield from histogram_family("aerobee_loop_lag_seconds", "How late the event loop was", [(base, lag)])
        half = parts.transactions.table.oldest()
        archived = parts.archived_to()
        gauges: list[tuple[str, str, str, float]] = [
            ("ready", "1 while /readyz says so", base, 0 if outside.reasons() else 1),
            ("held_pulls", "Pulls that wait for messages", base, state.polls.count),
            ("connections", "Open connections of clients", base, outside.connections()),
            ("store_bytes", "Bytes of the commit log", base, store.log_end - store.log_start),
            ("store_fenced", "1 after a failed sync, when no messages are taken", base, 1 if store.fenced else 0),
            ("store_full", "1 while sends are refused because the disk is full", base, 1 if store.full else 0),
            ("disk_used_ratio", "Used share of the disk", base, store.disk.used_ratio(store.root)),
            ("store_damaged_records", "Records that cannot be used", base, store.asides.total),
            ("commitlog_min_offset", "Where the commit log begins", base, store.log_start),
            ("commitlog_max_offset", "Where the commit log ends", base, store.log_end),
            ("commitlog_confirmed_offset", "What consumers may see", base, store.confirmed_offset),
            (
                "pending_oldest_seconds", "Age of the oldest thing that waits", f'{base},kind="half_message"',
                0 if half is None else max(0, now_ms - _since_ms(half)) / 1000,
            ),
            ("deduplicated_producers", "Idempotent producers that are known", base, len(parts.sends.dedup)),
            ("part_failures_total", "Failures of parts of the broker", base, parts.failures()),
        ]  # fmt: skip
        if archived is not None:
            gauges.append(("archive_behind_bytes", "Bytes that are not archived", base, store.log_end - archived))
        for name, words, labels, value in gauges:
            kind = "counter" if name.endswith("_total") else "gauge"
            yield from family(f"aerobee_{name}", kind, words, [(labels, value)])
        yield from family(
            "aerobee_tls_certificate_expiry_seconds", "gauge", "When a certificate ends, in seconds since 1970",
            ((f'{base},file="{escaped(name)}"', value) for name, value in outside.certificates().items()),
        )  # fmt: skip
        yield from family(
            "aerobee_build_info", "gauge", "The version of this broker",
            [(self._labels(version=outside.version, rocketmq_version="V5_5_0"), 1)],
        )  # fmt: skip


def _since_ms(half: Half) -> int:
    return half.first_stored_ms if half.first_stored_ms > 0 else half.stored_ms


def version_name(version: int) -> str:
    """Return the name of a client's version as Apache writes it; the number itself for versions before 4.0.

    RocketMQ: MQVersion.getVersionDesc.
    """
    if not _V4_0_0_SNAPSHOT <= version < _V6_0_0_SNAPSHOT:
        return str(version)
    number, is_release = divmod(version - _V4_0_0_SNAPSHOT, 2)
    name = f"v{4 + number // 100}_{number // 10 % 10}_{number % 10}"
    return name if is_release else name + "_snapshot"


def _in_classes(counts: list[int], total_ms: float) -> Histogram:
    """Return times of requests in the wider classes of a family of Apache's."""
    found = Histogram(_CREATE_BOUNDS_MS, total=total_ms)
    for bound, count in zip((*BOUNDS_MS, math.inf), counts, strict=True):
        place = next((at for at, upper in enumerate(_CREATE_BOUNDS_MS) if bound <= upper), len(_CREATE_BOUNDS_MS))
        found.counts[place] += count
    return found


def _largest(totals: list[tuple[str, int]], limit: int) -> set[str]:
    """Return the keys that have a series of their own."""
    if len(totals) <= limit:
        return {key for key, _ in totals}
    return {key for key, _ in heapq.nlargest(limit - 1, totals, key=lambda one: one[1])}


def _and_rest(series: Iterable[tuple[str, float]], labels: str, rest: float) -> Iterator[tuple[str, float]]:
    yield from series
    if rest:
        yield labels, rest
