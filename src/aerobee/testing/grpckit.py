"""A small gRPC client for tests: the package grpcio below, our own messages above."""

from __future__ import annotations

import functools
import hashlib
import hmac
import queue
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import grpc  # type: ignore[import-untyped, unused-ignore]

from aerobee.protocol.v2 import calls, enums
from aerobee.protocol.v2.fields import decode, encode
from aerobee.protocol.v2.values import (
    PbAddress,
    PbBroker,
    PbDuration,
    PbEndpoints,
    PbFilterExpression,
    PbMessage,
    PbMessageQueue,
    PbPublishing,
    PbResource,
    PbSettings,
    PbStatus,
    PbSubscription,
    PbSubscriptionEntry,
    PbSystemProperties,
)
from aerobee.runtime.clock import SystemClock

T = TypeVar("T")
SERVICE = "/apache.rocketmq.v2.MessagingService/"


def topic_named(name: str) -> PbResource:
    """Return the resource of a name."""
    return PbResource("", name)


def message(topic: str, body: bytes, message_id: str, **system: Any) -> PbMessage:
    """Return a message to send."""
    user = system.pop("user", {})
    return PbMessage(topic_named(topic), user, PbSystemProperties(message_id=message_id, **system), body)


def signed(user: str, secret: str, date: str = "") -> dict[str, str]:
    """Return the metadata by which the official clients say who they are. `date` is that of the signature, or now."""
    date = date or datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    signature = hmac.new(secret.encode(), date.encode(), hashlib.sha1).hexdigest().upper()
    words = f"Credential={user}/ignored, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {"x_mq_date_time": date, "authorization": f"MQv2-HMAC-SHA1 {words}"}


class GrpcPeer:
    """A client of one address."""

    def __init__(self, address: str, client_id: str = "peer@1", credentials: Any = None, **metadata: str) -> None:
        if credentials is None:
            self.channel = grpc.insecure_channel(address)
        else:
            self.channel = grpc.secure_channel(address, credentials)
        host, _, port = address.rpartition(":")
        self.endpoints = PbEndpoints(enums.IPV4, [PbAddress(host, (port.isdigit() and _port(port)) or 0)])
        own = {"x-mq-client-id": client_id, "x-mq-language": "PYTHON"} if client_id else {}
        self.metadata: tuple[tuple[str, str], ...] = tuple(
            {**own, **{name.replace("_", "-"): value for name, value in metadata.items()}}.items()
        )

    def __enter__(self) -> GrpcPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def call(self, request: object, answer: type[T], timeout_s: float = 20.0, **more: str) -> T:
        """Make a unary call. Its method is named as its request is."""
        name = type(request).__name__.removeprefix("Pb").removesuffix("Request")
        method = self.channel.unary_unary(
            SERVICE + name, request_serializer=encode, response_deserializer=functools.partial(decode, answer)
        )
        made: T = method(request, timeout=timeout_s, metadata=self.metadata)
        return made

    def stream(self, request: object, answer: type[T], timeout_s: float = 30.0) -> list[T]:
        """Make a call that answers with a stream; return all of it."""
        name = type(request).__name__.removeprefix("Pb").removesuffix("Request")
        method = self.channel.unary_stream(
            SERVICE + name, request_serializer=encode, response_deserializer=functools.partial(decode, answer)
        )
        return list(method(request, timeout=timeout_s, metadata=self.metadata))

    # -- what tests do often

    def send(self, *messages: PbMessage) -> calls.PbSendMessageResponse:
        """Send messages."""
        return self.call(calls.PbSendMessageRequest(list(messages)), calls.PbSendMessageResponse)

    def receive(
        self,
        topic: str,
        group: str,
        *,
        broker: str = "broker-a",
        batch: int = 32,
        invisible_s: int = 30,
        wait_s: int = 5,
        tags: str = "*",
        sql: str = "",
        timeout_s: float = 30.0,
        **more: Any,
    ) -> list[calls.PbReceiveMessageResponse]:
        """Receive; return every answer of the stream."""
        place = PbMessageQueue(topic_named(topic), -1, enums.READ, PbBroker(broker, 0, self.endpoints), [])
        wanted = PbFilterExpression(enums.SQL, sql) if sql else PbFilterExpression(enums.TAG, tags)
        request = calls.PbReceiveMessageRequest(
            group=topic_named(group), message_queue=place, filter_expression=wanted,
            batch_size=batch, invisible_duration=PbDuration(invisible_s),
            long_polling_timeout=PbDuration(wait_s), **more,
        )  # fmt: skip
        return self.stream(request, calls.PbReceiveMessageResponse, timeout_s)

    def messages(self, topic: str, group: str, **more: Any) -> list[PbMessage]:
        """Receive; return the messages."""
        return [one.message for one in self.receive(topic, group, **more) if one.message is not None]

    def ack(self, topic: str, group: str, *handles: str) -> calls.PbAckMessageResponse:
        """Acknowledge messages."""
        entries = [calls.PbAckMessageEntry("id", handle) for handle in handles]
        request = calls.PbAckMessageRequest(topic_named(group), topic_named(topic), entries)
        return self.call(request, calls.PbAckMessageResponse)

    def telemetry(self) -> Telemetry:
        """Open a telemetry stream."""
        return Telemetry(self)


class Telemetry:
    """A telemetry stream: what is put in leaves, and what comes is taken one by one."""

    def __init__(self, peer: GrpcPeer) -> None:
        self._out: queue.Queue[calls.PbTelemetryCommand | None] = queue.Queue()
        method = peer.channel.stream_stream(
            SERVICE + "Telemetry", request_serializer=encode,
            response_deserializer=functools.partial(decode, calls.PbTelemetryCommand),
        )  # fmt: skip
        self.answers = method(self._requests(), metadata=peer.metadata)

    def _requests(self) -> Iterator[calls.PbTelemetryCommand]:
        while (one := self._out.get()) is not None:
            yield one

    def put(self, command: calls.PbTelemetryCommand) -> None:
        """Send a command."""
        self._out.put(command)

    def next(self) -> calls.PbTelemetryCommand:
        """Return the next command of the server."""
        one: calls.PbTelemetryCommand = next(self.answers)
        return one

    def settle(self, settings: PbSettings) -> PbSettings:
        """Tell settings; return those that the server gives back."""
        self.put(calls.PbTelemetryCommand(settings=settings))
        answer = self.next()
        assert answer.settings is not None, answer
        return answer.settings

    def close(self) -> None:
        """End the stream."""
        self._out.put(None)
        self.answers.cancel()


def producer_settings(*topics: str) -> PbSettings:
    """Return the settings of a producer."""
    return PbSettings(client_type=enums.PRODUCER, publishing=PbPublishing([topic_named(one) for one in topics]))


def consumer_settings(group: str, topics: Sequence[str], kind: int = enums.SIMPLE_CONSUMER) -> PbSettings:
    """Return the settings of a consumer."""
    entries = [PbSubscriptionEntry(topic_named(one), PbFilterExpression(enums.TAG, "*")) for one in topics]
    return PbSettings(client_type=kind, subscription=PbSubscription(topic_named(group), entries))


def code_of(answer: object) -> int:
    """Return the code of an answer's status."""
    status = getattr(answer, "status", None)
    assert isinstance(status, PbStatus), answer
    return status.code


def handle_of(one: PbMessage) -> str:
    """Return the receipt handle of a message that was received."""
    assert one.system_properties is not None and one.system_properties.receipt_handle is not None
    return one.system_properties.receipt_handle


def _port(text: str) -> int:
    from aerobee.model.numbers import parse_int

    return parse_int(text, 0, 65535)
