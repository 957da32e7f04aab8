"""OpenTelemetry: the spans, links, attributes and metrics of a client, and a client without the package."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from aerobee import DeadLetter, LitePullConsumer, Message, Producer, PushConsumer, RetryLater
from aerobee.client.core import CONSUME_HOOKS, RECEIVE_HOOKS, SEND_HOOKS
from aerobee.errors.codes import TopicNotExistError
from aerobee.otel import AerobeeInstrumentor
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.workload import eventually


class Seen:
    """What was exported."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self._metrics = InMemoryMetricReader()
        self.meters = MeterProvider([self._metrics])

    def spans(self, name: str) -> list[ReadableSpan]:
        return [one for one in self._spans.get_finished_spans() if one.name == name]

    def span(self, name: str) -> ReadableSpan:
        found = self.spans(name)
        assert len(found) == 1, [one.name for one in self._spans.get_finished_spans()]
        return found[0]

    def points(self, name: str) -> dict[tuple[str, str], float]:
        """Return count or number of a metric, by operation and error."""
        data = self._metrics.get_metrics_data()
        assert data is not None
        found: dict[tuple[str, str], float] = {}
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points if metric.name == name else ():
                        key = (
                            str(point.attributes["messaging.operation.name"]),
                            str(point.attributes.get("error.type", "")),
                        )
                        found[key] = found.get(key, 0) + getattr(point, "value", getattr(point, "count", 0))
        return found


@pytest.fixture
def seen() -> Iterator[Seen]:
    made = Seen()
    instrumentor = AerobeeInstrumentor()
    instrumentor.instrument(tracer_provider=made.provider, meter_provider=made.meters, skip_dep_check=True)
    yield made
    instrumentor.uninstrument()
    assert SEND_HOOKS == CONSUME_HOOKS == RECEIVE_HOOKS == []


def place(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(one.context.trace_id, one.context.span_id) for one in span.links]


def test_otel_spans(seen: Seen) -> None:
    async def main(cluster: LocalCluster) -> None:
        tracer = seen.provider.get_tracer("test")
        inside: list[int] = []
        handled: list[Message] = []
        consumer = PushConsumer(cluster.namesrv, group="billing", consume_from="first")

        @consumer.listener("orders")
        async def handle(message: Message) -> None:
            inside.append(trace.get_current_span().get_span_context().trace_id)
            handled.append(message)
            if message.body == b"later" and message.reconsume_times == 0:
                raise RetryLater("once more", delay_level=1)
            if message.body == b"never":
                raise DeadLetter("it is bad")

        async with Producer(cluster.namesrv, group="shop") as producer:
            with tracer.start_as_current_span("request"):
                receipt = await producer.send("orders", b"now", tags="PAID", keys="a b", properties={"mine": "kept"})
            await producer.send("orders", b"later", sharding_key="k")
            await producer.send("orders", b"never", properties={"traceparent": "the user's own"})
            await producer.send_batch([Message("orders", b"one"), Message("orders", b"two")])
            with pytest.raises(TopicNotExistError):
                await producer.send("missing", b"x", timeout=1)
            async with consumer:
                await eventually(lambda: len(handled) == 6 and len(seen.spans("process orders")) == 6)

        # the send: a child of what the application does, in the same trace
        request = seen.span("request")
        sends = seen.spans("send orders")
        assert [one.kind for one in sends] == [SpanKind.PRODUCER] * 3
        assert sends[0].parent is not None
        assert (sends[0].parent.trace_id, sends[0].parent.span_id) == place(request)
        attributes = dict(sends[0].attributes or {})
        host, _, port = cluster.broker_address(0).rpartition(":")
        client_id = attributes.pop("messaging.client.id")
        assert client_id
        assert attributes == {
            "messaging.system": "rocketmq",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": "orders",
            "messaging.destination.partition.id": f"broker-a:{receipt.queue_id}",
            "messaging.message.id": receipt.message_id,
            "messaging.message.body.size": 3,
            "messaging.rocketmq.client_group": "shop",
            "messaging.rocketmq.namespace": "",
            "messaging.rocketmq.message.type": "normal",
            "messaging.rocketmq.message.tag": "PAID",
            "messaging.rocketmq.message.keys": ("a", "b"),
            "server.address": host,
            "server.port": int(port),
        }
        assert dict(sends[1].attributes or {})["messaging.rocketmq.message.type"] == "fifo"
        assert dict(sends[1].attributes or {})["messaging.rocketmq.message.group"] == "k"

        # a send that fails
        failed = seen.span("send missing")
        assert failed.status.status_code is StatusCode.ERROR
        assert dict(failed.attributes or {})["error.type"] == "TOPIC_NOT_EXIST"

        # a batch: each message has a span of its own
        creates = seen.spans("create orders")
        assert [dict(one.attributes or {})["messaging.batch.message_count"] for one in creates] == [2, 2]

        # handlers: a link to the message's span, and code inside runs within the handler's span
        by_body = {message.body: message for message in handled if message.reconsume_times == 0}
        processes = seen.spans("process orders")
        assert [one.kind for one in processes] == [SpanKind.CONSUMER] * 6
        of_message = {str(dict(one.attributes or {})["messaging.message.id"]): one for one in processes}
        now = of_message[receipt.message_id]
        assert linked(now) == [place(sends[0])]
        assert now.parent is None
        attributes = dict(now.attributes or {})
        assert attributes["messaging.consumer.group.name"] == "billing"
        assert attributes["messaging.operation.type"] == "process"
        assert attributes["messaging.rocketmq.consumption_model"] == "clustering"
        assert attributes["messaging.destination.partition.id"] == f"broker-a:{receipt.queue_id}"
        assert set(inside) == {place(one)[0] for one in processes}
        assert by_body[b"now"].properties["mine"] == "kept"

        # what the user has set is not replaced, so there is nothing to link
        assert by_body[b"never"].properties["traceparent"] == "the user's own"
        assert linked(of_message[by_body[b"never"].message_id]) == []
        dead = seen.span("dead_letter orders")
        assert dead.kind is SpanKind.CLIENT
        assert dict(dead.attributes or {})["messaging.operation.type"] == "settle"

        # a retry keeps the trace
        again = [one for one in processes if place(sends[1]) in linked(one)]
        assert len(again) == 2
        assert [one.status.status_code for one in again] == [StatusCode.ERROR, StatusCode.UNSET]
        assert linked(seen.span("retry orders")) == [place(sends[1])]

        assert seen.points("messaging.client.sent.messages") == {("send", ""): 5, ("send", "TOPIC_NOT_EXIST"): 1}
        assert seen.points("messaging.client.consumed.messages") == {("poll", ""): 6}
        assert sum(seen.points("messaging.process.duration").values()) == 6
        assert sum(seen.points("messaging.client.operation.duration").values()) == 6

    with LocalCluster(settings={"messageDelayLevel": "1s", "autoCreateTopicEnable": "false"}) as cluster:
        cluster.create_topic("orders", 1)
        asyncio.run(main(cluster))


def test_messages_that_are_handed_out_have_a_span(seen: Seen) -> None:
    async def main(cluster: LocalCluster) -> None:
        async with Producer(cluster.namesrv) as producer:
            await producer.send("orders", b"x")
        async with LitePullConsumer(cluster.namesrv, group="g", consume_from="first") as consumer:
            consumer.subscribe("orders")
            messages = await consumer.poll(timeout=20)
            assert len(messages) == 1
        poll = seen.span("poll orders")
        assert poll.kind is SpanKind.CLIENT
        assert linked(poll) == [place(seen.span("send orders"))]
        assert dict(poll.attributes or {})["messaging.operation.type"] == "receive"

    with LocalCluster() as cluster:
        cluster.create_topic("orders", 1)
        asyncio.run(main(cluster))


def test_a_hook_that_raises_changes_nothing_that_is_consumed() -> None:
    class Broken:
        def before_consume(self, context: object) -> None:
            raise RuntimeError("planned")

        after_consume = before_consume

    async def main(cluster: LocalCluster) -> None:
        done: list[bytes] = []
        consumer = PushConsumer(cluster.namesrv, group="g", consume_from="first", hooks=[Broken()])

        @consumer.listener("orders", batch=8)
        def handle(messages: list[Message]) -> None:
            done.extend(message.body for message in messages)

        async with Producer(cluster.namesrv) as producer, consumer:
            await producer.send("orders", b"x")
            await eventually(lambda: done == [b"x"])

    with LocalCluster() as cluster:
        cluster.create_topic("orders", 1)
        asyncio.run(main(cluster))


ABSENT = """
import sys
sys.modules["opentelemetry"] = None  # as where the package is missing
import asyncio, aerobee
from aerobee.testing.cluster import LocalCluster

async def main(namesrv):
    async with aerobee.Producer(namesrv) as producer:
        await producer.send("orders", b"x", properties={"mine": "1"})

with LocalCluster() as cluster:
    cluster.create_topic("orders", 1)
    asyncio.run(main(cluster.namesrv))
    (message,) = cluster.messages("orders")
    assert dict(message.properties) == {"mine": "1"}, message.properties
try:
    import aerobee.otel
except ImportError as error:
    print(error)
"""


def test_otel_absent() -> None:
    done = subprocess.run([sys.executable, "-c", ABSENT], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "aerobee.otel needs opentelemetry-api: pip install 'aerobee[otel]'"


def test_a_client_that_nobody_instruments_loads_nothing() -> None:
    words = "import aerobee, sys; aerobee.Producer; aerobee.PushConsumer; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, timeout=60, check=True)
    assert "opentelemetry" not in done.stdout
