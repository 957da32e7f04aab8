"""Telemetry: settings of clients, and what servers ask clients on the same stream.

RocketMQ: ClientActivity, GrpcClientSettingsManager, GrpcClientChannel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aerobee.errors import AerobeeError
from aerobee.hot.log.record import decode_records
from aerobee.model.dialect import dumps
from aerobee.model.group import RETRY_DELAYS_MS, SubscriptionGroupConfig
from aerobee.net.link import Link
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, encode_command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.transaction import CheckTransactionStateRequestHeader
from aerobee.protocol.v2 import enums
from aerobee.protocol.v2.calls import (
    PbPrintThreadStackTraceCommand,
    PbRecoverOrphanedTransactionCommand,
    PbTelemetryCommand,
    PbVerifyMessageCommand,
)
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.values import (
    PbCustomizedBackoff,
    PbExponentialBackoff,
    PbPublishing,
    PbRetryPolicy,
    PbSettings,
    PbSubscription,
)
from aerobee.proxy.backend import Backend
from aerobee.proxy.clients import GrpcClient
from aerobee.proxy.delivered import pb_message
from aerobee.proxy.receiving import filter_of
from aerobee.proxy.rules import BODY_MAX, NO_LITE_TOPICS, duration_of, group_of, topic_of
from aerobee.proxy.sending import HalfPlace
from aerobee.proxy.status import OK, RefusedCallError

_BATCH: Final = 32
_POLL_MS: Final = 20_000
_SUBSCRIPTIONS_MAX: Final = 1_000
_ANSWER_S: Final = 5.0
_PRODUCERS: Final = (0, enums.PRODUCER)
_CONSUMERS: Final = (enums.PUSH_CONSUMER, enums.SIMPLE_CONSUMER, enums.PULL_CONSUMER)
_LITE_CONSUMERS: Final = (enums.LITE_PUSH_CONSUMER, enums.LITE_SIMPLE_CONSUMER)


async def take_settings(backend: Backend, client: GrpcClient, given: PbSettings) -> PbTelemetryCommand:
    """Remember what a client tells of itself; return the settings that it is to use."""
    if given.publishing is not None:
        if given.client_type not in (None, *_PRODUCERS):
            raise RefusedCallError(Code.UNRECOGNIZED_CLIENT_TYPE, "only a producer publishes")
        if len(given.publishing.topics) > _SUBSCRIPTIONS_MAX:
            raise RefusedCallError(Code.BAD_REQUEST, f"a client names at most {_SUBSCRIPTIONS_MAX} topics")
        for topic in given.publishing.topics:
            topic_of(topic)
        merged = _for_producer(given)
    elif given.subscription is not None:
        merged = await _for_consumer(backend, given, given.subscription)
    else:
        raise RefusedCallError(Code.BAD_REQUEST, "settings are for publishing or for a subscription")
    client.settings = merged
    await client.beat()
    return PbTelemetryCommand(status=OK, settings=merged)


def _for_producer(given: PbSettings) -> PbSettings:
    assert given.publishing is not None
    backoff = PbExponentialBackoff(duration_of(10), duration_of(1000), 2.0)
    return PbSettings(
        client_type=given.client_type or enums.PRODUCER,
        access_point=given.access_point,
        backoff_policy=PbRetryPolicy(3, exponential_backoff=backoff),
        request_timeout=given.request_timeout,
        publishing=PbPublishing(given.publishing.topics, BODY_MAX, True),
        user_agent=given.user_agent,
    )


async def _for_consumer(backend: Backend, given: PbSettings, told: PbSubscription) -> PbSettings:
    if given.client_type in _LITE_CONSUMERS:
        raise RefusedCallError(Code.NOT_IMPLEMENTED, NO_LITE_TOPICS)
    if given.client_type not in _CONSUMERS:
        raise RefusedCallError(Code.UNRECOGNIZED_CLIENT_TYPE, f"client type {given.client_type} subscribes to nothing")
    if len(told.subscriptions) > _SUBSCRIPTIONS_MAX:
        raise RefusedCallError(Code.BAD_REQUEST, f"a client names at most {_SUBSCRIPTIONS_MAX} topics")
    group = group_of(told.group)
    topics = [topic_of(one.topic) for one in told.subscriptions]
    for one in told.subscriptions:
        filter_of(one.expression)
    config = await backend.group(group, topics)
    if config is None:
        raise RefusedCallError(Code.CONSUMER_GROUP_NOT_FOUND, f"group not found: {group}")
    return PbSettings(
        client_type=given.client_type,
        access_point=given.access_point,
        backoff_policy=_backoff(config),
        request_timeout=given.request_timeout,
        subscription=PbSubscription(
            told.group,
            told.subscriptions,
            config.consume_message_orderly,
            _BATCH,
            duration_of(_POLL_MS),
        ),
        user_agent=given.user_agent,
    )


def _backoff(config: SubscriptionGroupConfig) -> PbRetryPolicy:
    policy, attempts = config.group_retry_policy, config.retry_max_times + 1
    if policy.type == "EXPONENTIAL" and policy.has_exponential:
        backoff = PbExponentialBackoff(
            duration_of(policy.initial_ms), duration_of(policy.max_ms), policy.multiplier * 1.0
        )
        return PbRetryPolicy(attempts, exponential_backoff=backoff)
    delays = policy.delays_ms or RETRY_DELAYS_MS
    return PbRetryPolicy(attempts, customized_backoff=PbCustomizedBackoff([duration_of(ms) for ms in delays]))


class Pushes:
    """What brokers ask of clients, carried on their telemetry streams."""

    def __init__(self, nonce: Callable[[], str], now_ms: Callable[[], int]) -> None:
        self._nonce = nonce
        self._now_ms = now_ms

    def on_push(self, client: GrpcClient, link: Link, command: Command) -> Command | None:
        """Answer a broker's request at once, or pass it on and answer later."""
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            self._check_back(client, link, command)
            return None
        if command.code in (RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY):
            if client.tell is None:
                return response(command, ResponseCode.SYSTEM_ERROR, remark="the client has no telemetry stream")
            if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
                nonce = self._expect(client, link, command, _running_info)
                told = PbTelemetryCommand(print_thread_stack_trace_command=PbPrintThreadStackTraceCommand(nonce))
            else:
                found = decode_records(command.body)
                if not found:
                    return response(command, ResponseCode.SYSTEM_ERROR, remark="there is no message to consume")
                nonce = self._expect(client, link, command, _consumed)
                topic = found[0].topic.decode("utf-8", "replace")
                message = pb_message(found[0], topic, client.group, None, self._now_ms())
                told = PbTelemetryCommand(verify_message_command=PbVerifyMessageCommand(nonce, message))
            client.tell(told)
            return None
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            return None
        return response(
            command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="a gRPC client keeps no offsets that could be set"
        )

    def _check_back(self, client: GrpcClient, link: Link, command: Command) -> None:
        header = decode_header(CheckTransactionStateRequestHeader, command)
        found = decode_records(command.body)
        if client.tell is None or not found:
            return
        record = found[0]
        # The header names the topic of half messages.
        topic = record.topic.decode("utf-8", "replace")
        message = pb_message(record, topic, "", None, self._now_ms())
        unique = header.transaction_id or header.msg_id or ""
        place = HalfPlace(
            header.bname or client.names.get(link.address, ""),
            header.tran_state_table_offset,
            header.commit_log_offset,
            unique,
        )
        client.tell(
            PbTelemetryCommand(
                recover_orphaned_transaction_command=PbRecoverOrphanedTransactionCommand(message, place.text())
            )
        )

    def _expect(
        self, client: GrpcClient, link: Link, command: Command, answer: Callable[[Command, PbTelemetryCommand], Command]
    ) -> str:
        nonce = self._nonce()

        def late() -> None:
            if client.asked.pop(nonce, None) is not None:
                write(response(command, ResponseCode.SYSTEM_ERROR, remark="the client did not answer in time"))

        def write(told: Command) -> None:
            try:
                link.write(encode_command(told))
            except AerobeeError:
                return

        def answered(told: PbTelemetryCommand) -> None:
            timer.cancel()
            write(answer(command, told))

        timer = asyncio.get_running_loop().call_later(_ANSWER_S, late)
        client.asked[nonce] = answered
        return nonce


def answered_by(client: GrpcClient | None, told: PbTelemetryCommand) -> None:
    """Take a client's answer to what a broker asked. One that is not known was not asked."""
    if client is None:
        return
    if told.thread_stack_trace is not None:
        nonce = told.thread_stack_trace.nonce
    elif told.verify_message_result is not None:
        nonce = told.verify_message_result.nonce
    else:
        return
    waiting = client.asked.pop(nonce, None)
    if waiting is not None:
        waiting(told)


def _running_info(command: Command, told: PbTelemetryCommand) -> Command:
    trace = told.thread_stack_trace
    body = {"jstack": (trace.thread_stack_trace or "") if trace is not None else ""}
    return response(command, body=dumps(body))


# RocketMQ: GrpcClientChannel, ConsumeMessageDirectlyResult.
_RESULTS: Final = {
    Code.OK.value: "CR_SUCCESS",
    Code.FAILED_TO_CONSUME_MESSAGE.value: "CR_LATER",
    Code.MESSAGE_CORRUPTED.value: "CR_RETURN_NULL",
}


def _consumed(command: Command, told: PbTelemetryCommand) -> Command:
    code = told.status.code if told.status is not None else Code.OK.value
    remark = told.status.message if told.status is not None else ""
    result = _RESULTS.get(code, "CR_THROW_EXCEPTION")
    body = {"autoCommit": True, "consumeResult": result, "order": False, "remark": remark, "spentTimeMills": 0}
    return response(command, body=dumps(body))
