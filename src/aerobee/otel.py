"""OpenTelemetry for the client: spans, metrics and context by the messaging conventions.

    from aerobee.otel import AerobeeInstrumentor
    AerobeeInstrumentor().instrument()  # before clients are made

`opentelemetry-instrument python app.py` does the same by itself. The context of a send travels with its message in the
properties that the global propagator writes (`traceparent`, `tracestate`, `baggage`), and retries and dead letters keep
them. A property that the application has set is never replaced.

| call | span | kind | context |
|---|---|---|---|
| send, send_nowait, a transaction | `send TOPIC` | PRODUCER | sent with the message |
| each message of send_batch | `create TOPIC` | PRODUCER | sent with the message |
| a handler | `process TOPIC` | CONSUMER | a link to each message; `otel_parent=True`: the parent, for one message |
| messages that a pull consumer hands out | `poll TOPIC` | CLIENT | a link to each message |
| a message that is sent back | `retry TOPIC`, `dead_letter TOPIC` | CLIENT | a link to the message |

This module needs opentelemetry-api (`pip install aerobee[otel]`). Nothing else of Aerobee imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

try:
    from opentelemetry import context as otel_context
    from opentelemetry import metrics, propagate, trace
except ImportError as missing:
    raise ImportError("aerobee.otel needs opentelemetry-api: pip install 'aerobee[otel]'") from missing

from aerobee.client.core import (
    CONSUME_HOOKS,
    RECEIVE_HOOKS,
    SEND_HOOKS,
    ConsumeContext,
    SendContext,
)
from aerobee.errors import AerobeeError
from aerobee.model import sysproperties as names
from aerobee.model.message import Message
from aerobee.model.numbers import int_or
from aerobee.protocol.codes import ResponseCode
from aerobee.runtime.clock import SystemClock

try:
    from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]
except ImportError:  # without the package of instrumentors a program calls `instrument` itself

    class BaseInstrumentor:  # type: ignore[no-redef]
        """Stands for the base of instrumentors where their package is missing."""

        def instrument(self, **options: Any) -> None:
            self._instrument(**options)

        def uninstrument(self, **options: Any) -> None:
            self._uninstrument(**options)

        def _instrument(self, **options: Any) -> None:
            raise NotImplementedError

        def _uninstrument(self, **options: Any) -> None:
            raise NotImplementedError


SYSTEM: Final = "rocketmq"
_NAME: Final = "aerobee.otel"
_CODES: Final = {code: name for name, code in vars(ResponseCode).items() if isinstance(code, int)}
_clock = SystemClock()
_BOUNDS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)

# Called with a span that has begun, and the message that is sent or the messages that are consumed.
ProduceHook = Callable[[trace.Span, Message], None]
ConsumedHook = Callable[[trace.Span, Sequence[Message]], None]


class Tracing:
    """The hooks of instrumented clients."""

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        otel_parent: bool = False,
        produce_hook: ProduceHook | None = None,
        consume_hook: ConsumedHook | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(_NAME, tracer_provider=tracer_provider)
        meter = metrics.get_meter(_NAME, meter_provider=meter_provider)
        self._otel_parent = otel_parent
        self._produce_hook = produce_hook
        self._consume_hook = consume_hook
        # Spans under way, by the identity of their context.
        self._sends: dict[int, tuple[trace.Span, float]] = {}
        self._handlers: dict[int, tuple[trace.Span, Any, float]] = {}
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Messages that were sent")
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Messages that were handed out"
        )
        self._operation = _histogram(meter, "messaging.client.operation.duration", "How long a call took")
        self._process = _histogram(meter, "messaging.process.duration", "How long a handler took")

    # -- sends

    def before_send(self, context: SendContext) -> None:
        message = context.message
        operation = "create" if context.batch else "send"
        span = self._tracer.start_span(
            f"{operation} {message.topic}", kind=trace.SpanKind.PRODUCER, attributes=_of_send(context, operation)
        )
        if self._produce_hook is not None:
            self._produce_hook(span, message)
        propagate.inject(context.added, trace.set_span_in_context(span))
        self._sends[id(context)] = (span, _clock.monotonic())

    def after_send(self, context: SendContext) -> None:
        span, began_s = self._sends.pop(id(context), (None, 0.0))
        if span is None:
            return
        receipt, labels = context.receipt, _labels("send", "send", context.message.topic)
        if receipt is not None:
            span.set_attribute("messaging.destination.partition.id", f"{receipt.broker}:{receipt.queue_id}")
            _set_server(span, receipt.broker_address)
        if context.error is not None:
            labels["error.type"] = _fail(span, context.error)
        span.end()
        self._sent.add(1, labels)
        self._operation.record(_clock.monotonic() - began_s, labels)

    # -- handlers

    def before_consume(self, context: ConsumeContext) -> None:
        messages = context.messages
        parent = None
        if self._otel_parent and len(messages) == 1:
            parent = propagate.extract(messages[0].properties)
        span = self._tracer.start_span(
            f"process {messages[0].topic}", context=parent, kind=trace.SpanKind.CONSUMER, links=_links(messages),
            attributes=_of_consume(context, "process", "process"),
        )  # fmt: skip
        if self._consume_hook is not None:
            self._consume_hook(span, messages)
        token = otel_context.attach(trace.set_span_in_context(span))
        self._handlers[id(context)] = (span, token, _clock.monotonic())
        self._count(context)

    def after_consume(self, context: ConsumeContext) -> None:
        begun = self._handlers.pop(id(context), None)
        if begun is None:
            return
        span, token, began_s = begun
        labels = _labels("process", "process", context.messages[0].topic, context.group)
        if context.verdict != "done":
            labels["error.type"] = context.reason.partition(":")[0] or context.verdict
            span.set_attribute("error.type", labels["error.type"])
            span.set_status(trace.Status(trace.StatusCode.ERROR, context.reason))
            self._settled(context)
        span.end()
        otel_context.detach(token)
        self._process.record(_clock.monotonic() - began_s, labels)

    def _settled(self, context: ConsumeContext) -> None:
        """Tell that messages are sent back, inside the span of the handler that asked for it."""
        attributes = _of_consume(context, context.verdict, "settle")
        self._tracer.start_span(
            f"{context.verdict} {context.messages[0].topic}", kind=trace.SpanKind.CLIENT,
            links=_links(context.messages), attributes=attributes,
        ).end()  # fmt: skip

    # -- messages that are handed out

    def received(self, context: ConsumeContext, seconds: float) -> None:
        messages = context.messages
        now_ns = _clock.now_ms() * 1_000_000
        span = self._tracer.start_span(
            f"poll {messages[0].topic}", kind=trace.SpanKind.CLIENT, links=_links(messages),
            attributes=_of_consume(context, "poll", "receive"), start_time=now_ns - round(seconds * 1e9),
        )  # fmt: skip
        if self._consume_hook is not None:
            self._consume_hook(span, messages)
        span.end(now_ns)
        labels = _labels("poll", "receive", messages[0].topic, context.group)
        self._operation.record(seconds, labels)
        self._count(context)

    def _count(self, context: ConsumeContext) -> None:
        labels = _labels("poll", "receive", context.messages[0].topic, context.group)
        self._consumed.add(len(context.messages), labels)


class AerobeeInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Instruments the clients that are made from then on.

    Options: `tracer_provider`, `meter_provider`, `otel_parent`, `produce_hook(span, message)`,
    `consume_hook(span, messages)`.
    """

    _tracing: Tracing | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        return ("aerobee >= 0.1",)

    def _instrument(self, **options: Any) -> None:
        known = ("tracer_provider", "meter_provider", "otel_parent", "produce_hook", "consume_hook")
        made = Tracing(**{name: options[name] for name in known if options.get(name) is not None})
        type(self)._tracing = made
        SEND_HOOKS.append(made)
        CONSUME_HOOKS.append(made)
        RECEIVE_HOOKS.append(made)

    def _uninstrument(self, **options: Any) -> None:
        made = type(self)._tracing
        type(self)._tracing = None
        for hooks in (SEND_HOOKS, CONSUME_HOOKS, RECEIVE_HOOKS):
            if made in hooks:
                hooks.remove(made)  # type: ignore[arg-type]


# -- attributes


def _labels(operation: str, kind: str, topic: str, group: str = "") -> dict[str, Any]:
    found = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": topic,
    }
    return {**found, "messaging.consumer.group.name": group} if group else found


def _of_send(context: SendContext, operation: str) -> dict[str, Any]:
    message = context.message
    found = _labels(operation, operation, message.topic)
    found.update(_of_client(context.client_id, context.namespace))
    found["messaging.message.id"] = message.message_id
    found["messaging.message.body.size"] = len(message.body)
    found["messaging.rocketmq.client_group"] = context.group
    if context.batch:
        found["messaging.batch.message_count"] = context.batch
    found.update(_of_message(message))
    return found


def _of_consume(context: ConsumeContext, operation: str, kind: str) -> dict[str, Any]:
    messages = context.messages
    found = _labels(operation, kind, messages[0].topic, context.group)
    found.update(_of_client(context.client_id, context.namespace))
    found["messaging.rocketmq.consumption_model"] = "broadcasting" if context.broadcast else "clustering"
    if len(messages) > 1:
        found["messaging.batch.message_count"] = len(messages)
        return found
    message = messages[0]
    found["messaging.message.id"] = message.message_id
    found["messaging.message.body.size"] = len(message.body)
    found["messaging.destination.partition.id"] = f"{message.broker}:{message.queue_id}"
    found.update(_of_message(message))
    return found


def _of_client(client_id: str, namespace: str) -> dict[str, Any]:
    return {"messaging.client.id": client_id, "messaging.rocketmq.namespace": namespace}


def _of_message(message: Message) -> dict[str, Any]:
    system = message.system_properties
    found: dict[str, Any] = {"messaging.rocketmq.message.type": _type_of(system)}
    if message.tags:
        found["messaging.rocketmq.message.tag"] = message.tags
    if message.keys:
        found["messaging.rocketmq.message.keys"] = message.key_list
    for name, attribute in (
        (names.SHARDING_KEY, "messaging.rocketmq.message.group"),
        (names.DELAY, "messaging.rocketmq.message.delay_time_level"),
        (names.TIMER_DELIVER_MS, "messaging.rocketmq.message.delivery_timestamp"),
    ):
        if system.get(name):
            found[attribute] = system[name]
    return found


def _type_of(system: Any) -> str:
    if system.get(names.TRANSACTION_PREPARED) == "true":
        return "transaction"
    if any(system.get(name) for name in (names.DELAY, names.TIMER_DELIVER_MS, names.TIMER_DELAY_MS)):
        return "delay"
    return "fifo" if system.get(names.SHARDING_KEY) else "normal"


def _set_server(span: trace.Span, address: str) -> None:
    host, _, port = address.rpartition(":")
    if host:
        span.set_attribute("server.address", host.strip("[]"))
        span.set_attribute("server.port", int_or(port, 0))


def _fail(span: trace.Span, error: BaseException) -> str:
    """Mark a span as failed, and return what failed: RocketMQ's name of the code, else the class of the error."""
    code = error.code if isinstance(error, AerobeeError) else None
    kind = _CODES.get(code, str(code)) if code is not None else type(error).__name__
    span.set_attribute("error.type", kind)
    span.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))
    return kind


def _links(messages: Sequence[Message]) -> list[trace.Link]:
    found = []
    for message in messages:
        context = trace.get_current_span(propagate.extract(message.properties)).get_span_context()
        if context.is_valid:
            found.append(trace.Link(context, {"messaging.message.id": message.message_id}))
    return found


def _histogram(meter: metrics.Meter, name: str, words: str) -> metrics.Histogram:
    return meter.create_histogram(name, "s", words, explicit_bucket_boundaries_advisory=_BOUNDS_S)
