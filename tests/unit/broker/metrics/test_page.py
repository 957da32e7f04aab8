"""The metrics of a broker: what they count, and that nothing forged or deleted stays on the page."""

import re
from dataclasses import replace

import pytest

from aerobee.broker.metrics.page import BrokerMetrics, version_name
from aerobee.errors import ConfigError
from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.telemetry.config import MetricsConfig, MetricsExporter
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.sendkit import COMMIT, ROLLBACK, end, half, send
from aerobee.testing.storekit import small_config

ON = MetricsConfig(exporter_type=MetricsExporter.PROM, label="site:north")


def series(kit: BrokerKit, name: str) -> dict[str, float]:
    """Return the series of one name, by their labels without those that all have."""
    assert kit.broker.metrics is not None
    found = {}
    for line in "".join(kit.broker.metrics.page()).splitlines():
        matched = re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line)
        if matched is not None and matched[1] == name:
            base = 'site="north",cluster="DefaultCluster",node_type="broker",node_id="broker-a"'
            assert matched[2].startswith(base), line
            found[matched[2].removeprefix(base).lstrip(",")] = float(matched[3])
    return found


def pull(offset: int, *, hold_ms: int = 0, opaque: int = 20) -> Command:
    header = PullMessageRequestHeader(
        consumer_group="G", topic="T", queue_id=0, queue_offset=offset, max_msg_nums=32,
        sys_flag=6 if hold_ms else 4, commit_offset=0, suspend_timeout_millis=hold_ms, subscription="*",
        sub_version=1, expression_type="TAG",
    )  # fmt: skip
    return request(RequestCode.PULL_MESSAGE, header, opaque=opaque)


def test_messages_in_and_out_are_counted_by_topic_and_group() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 1, 1, attributes={"message.type": "FIFO"}))
        client = kit.connect()
        for number, size in enumerate((1, 1000, 5000, 600_000)):
            assert (await client.call(send(f"K{number}", b"x" * size, opaque=number))).code == 0
        assert (await client.call(pull(1))).code == 0
        await kit.pass_time(2, 0.1)
        topic = 'topic="T",message_type="fifo",is_system="false"'
        assert series(kit, "rocketmq_messages_in_total") == {topic: 4}
        stored = kit.store.log_end
        assert series(kit, "rocketmq_throughput_in_total") == {topic: stored}
        buckets = series(kit, "rocketmq_message_size_bucket")
        bounds = ("1024.0", "4096.0", "524288.0", "1048576.0", "+Inf")
        assert [buckets[f'{topic},le="{bound}"'] for bound in bounds] == [1, 2, 3, 4, 4]
        assert series(kit, "rocketmq_message_size_sum") == {topic: stored}
        group = 'topic="T",consumer_group="G",is_system="false"'
        # The third would be more than one answer holds.
        assert series(kit, "rocketmq_messages_out_total") == {group: 2}
        assert series(kit, "rocketmq_topic_number")[""] == len(kit.state.catalog.topic_table.topics)

    large = replace(small_config(segment=8 << 20), max_message_size=4 << 20)
    run_broker(main, metrics=ON, store_config=large)


def test_lag_is_told_for_groups_without_members_too() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 1, 1))
        client = kit.connect()
        for number in range(5):
            assert (await client.call(send(f"K{number}", opaque=number))).code == 0
            await kit.pass_time(1)
        assert kit.state.catalog.group("G") is not None
        kit.state.offsets.commit("G", "T", 0, 2)
        assert (await client.call(pull(2))).code == 0
        kit.state.offsets.note_pulled("G", "T", 0, 4)
        series(kit, "up")
        await kit.pass_time(12)
        labels = 'topic="T",consumer_group="G",is_system="false",is_retry="false"'
        assert series(kit, "rocketmq_consumer_lag_messages") == {labels: 3}
        assert series(kit, "rocketmq_consumer_ready_messages") == {labels: 1}
        assert series(kit, "rocketmq_consumer_inflight_messages") == {labels: 2}
        # Messages 2 and 4 of five that came a second apart, 12 s before.
        assert series(kit, "rocketmq_consumer_lag_latency_milliseconds") == {labels: 15_000}
        assert series(kit, "rocketmq_consumer_queueing_latency_milliseconds") == {labels: 13_000}

    run_broker(main, metrics=ON)


def test_times_are_told_by_request_and_answer() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 1, 1))
        client = kit.connect()
        assert (await client.call(send("A", opaque=1))).code == 0
        refused = await client.call(send("B", topic="a b", opaque=2))
        assert (await client.call(pull(0))).code == 0
        client.send(pull(1, hold_ms=5000, opaque=21))
        await kit.pass_time(6)
        assert (await client.answers())[0].opaque == 21
        await kit.connect().call(request(RequestCode.GET_BROKER_CONFIG, opaque=3))
        counts = series(kit, "rocketmq_rpc_latency_milliseconds_count")

        def count(code: str, answer: str, *, held: bool = False) -> float:
            return counts[
                f'protocol_type="remoting",request_code="{code}",response_code="{answer}",'
                f'is_long_polling="{str(held).lower()}",result="success"'
            ]

        assert count("send_message_v2", "success") == 1
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert count("send_message_v2", "invalid_parameter") == 1
        assert count("pull_message", "success") == 1
        assert count("pull_message", "pull_not_found", held=True) == 1
        assert count("get_broker_config", "success") == 1
        sums = series(kit, "rocketmq_rpc_latency_milliseconds_sum")
        assert 5000 <= max(sums.values()) < 7000

    run_broker(main, metrics=ON)


def test_ends_of_transactions_are_counted_by_topic() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 1, 1))
        client = kit.connect()
        answers = [await client.call(half(f"H{number}", opaque=number)) for number in range(3)]
        await kit.pass_time(1)
        assert series(kit, "rocketmq_half_messages") == {'topic="_all"': 3}
        assert (await client.call(end(answers[0], COMMIT, opaque=31))).code == 0
        assert (await client.call(end(answers[1], ROLLBACK, opaque=32))).code == 0
        assert series(kit, "rocketmq_commit_messages_total") == {'topic="T"': 1}
        assert series(kit, "rocketmq_rollback_messages_total") == {'topic="T"': 1}
        assert series(kit, "rocketmq_half_messages") == {'topic="_all"': 1}
        await kit.pass_time(100, 10)
        assert series(kit, "aerobee_pending_oldest_seconds")['kind="half_message"'] >= 100

    run_broker(main, metrics=ON)


def test_a_deleted_topic_leaves_the_page_at_once() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 1, 1))
        assert (await kit.connect().call(send("A"))).code == 0
        await kit.pass_time(2, 0.1)
        assert series(kit, "rocketmq_message_size_count")
        kit.state.stats.forget_topic("T")
        for name in ("rocketmq_messages_in_total", "rocketmq_message_size_count"):
            assert series(kit, name) == {}

    run_broker(main, metrics=ON)


def test_what_is_beyond_the_limit_is_added_up() -> None:
    async def main(kit: BrokerKit) -> None:
        now_ms = kit.clock.now_ms()
        for number in range(1, 301):
            kit.state.stats.add("TOPIC_PUT_NUMS", f"T{number}", number, now_ms)
        assert kit.broker.metrics is not None
        found = series(kit, "rocketmq_messages_in_total")
        assert len(found) == 100
        assert sum(found.values()) == 300 * 301 / 2
        assert found['topic="_other",message_type="normal",is_system="false"'] == sum(range(1, 202))

    limited = MetricsConfig(exporter_type=MetricsExporter.PROM, label="site:north", cardinality_limit=100)
    run_broker(main, metrics=limited)


def test_without_metrics_nothing_is_kept() -> None:
    async def main(kit: BrokerKit) -> None:
        assert kit.broker.metrics is None
        assert type(kit.broker.pulls).__name__ == "PullHandler"
        assert type(kit.state.flow.loop).__name__ == "LoopLag"
        assert kit.state.puts.stored == kit.broker.counts.stored

    run_broker(main)


def test_names_of_versions_are_apaches() -> None:
    names = [version_name(number) for number in (513, 409, 212, 213, 611, 3, 10**9)]
    assert names == ["v5_5_0", "v4_9_8", "v4_0_0_snapshot", "v4_0_0", "v5_9_9", "3", "1000000000"]


@pytest.mark.parametrize("label", ["a", "a:b,c", "1a:b", "topic:x", "__name:x", "a-b:c"])
def test_labels_that_prometheus_would_refuse_stop_the_start(label: str) -> None:
    with pytest.raises(ConfigError, match="metricsLabel"):
        MetricsConfig(label=label)


@pytest.mark.parametrize("kind", [MetricsExporter.OTLP_GRPC, MetricsExporter.LOG])
def test_other_exporters_stop_the_start(kind: MetricsExporter) -> None:
    with pytest.raises(ConfigError, match="let a collector scrape"):
        MetricsConfig(exporter_type=kind)


def test_the_page_has_one_head_for_each_name() -> None:
    async def main(kit: BrokerKit) -> None:
        metrics = kit.broker.metrics
        assert isinstance(metrics, BrokerMetrics)
        heads = [line for line in "".join(metrics.page()).splitlines() if line.startswith("# TYPE")]
        assert len(heads) == len(set(heads)) > 25

    run_broker(main, metrics=ON)
