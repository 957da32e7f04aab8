"""What a broker of a replicated group serves in each role: tables of handlers that the server swaps.

A broker without replicas serves its own tables, so it pays nothing for roles. A follower serves what changes nothing.
A leader asks for its authority before every request that changes something or promises something: past its lease
another broker may lead. RocketMQ: SendMessageProcessor.rejectRequest, PullMessageProcessor.rejectRequest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from aerobee.hot.wire.frame import Frame
from aerobee.net.channel import Channel
from aerobee.net.server import Answer, FastHandler, Handler
from aerobee.protocol.codes import FLAG_ONEWAY, MASTER_FIELD, PrivateRequestCode, RequestCode, ResponseCode
from aerobee.protocol.command import Command, response

# RocketMQ: NettyRemotingAbstract.processRequestCommand. Apache's clients try another broker then.
REJECTED: Final = "[REJECTREQUEST]system busy, start flow control for a while"

# What a follower serves. Everything else may change what the group agrees on.
HARMLESS: Final = frozenset(
    (
        RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.QUERY_CONSUME_QUEUE,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        # Consumers tell slaves too who they are. So a new master knows them before they know it.
        RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        # What slaves copy, and what administrators look at.
        RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS,
        RequestCode.GET_BROKER_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_BROKER_EPOCH_CACHE, RequestCode.GET_TOPIC_CONFIG, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.GET_PRODUCER_CONNECTION_LIST, RequestCode.GET_ALL_PRODUCER_INFO, RequestCode.GET_CONSUME_STATS,
        RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        RequestCode.QUERY_CONSUME_TIME_SPAN, RequestCode.QUERY_TOPICS_BY_CONSUMER,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, RequestCode.VIEW_BROKER_STATS_DATA,
        # The controller's requests about a group, which every replica answers.
        RequestCode.CONTROLLER_ELECT_MASTER, RequestCode.CONTROLLER_GET_REPLICA_INFO,
        RequestCode.CONTROLLER_GET_METADATA_INFO, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
        RequestCode.UPDATE_CONTROLLER_CONFIG, RequestCode.GET_CONTROLLER_CONFIG, RequestCode.CLEAN_BROKER_DATA,
        # Settings belong to one process. Segments are deleted by each replica on its own terms.
        RequestCode.UPDATE_BROKER_CONFIG, RequestCode.DELETE_EXPIRED_COMMITLOG,
        # These are answered with a refusal of their own by every broker.
        RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON,
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, RequestCode.ADD_BROKER, RequestCode.REMOVE_BROKER,
        RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.GET_COLD_DATA_FLOW_CTR_INFO, RequestCode.SET_COMMITLOG_READ_MODE,
        RequestCode.SWITCH_TIMER_ENGINE,
    )
)  # fmt: skip

# What a follower serves besides with slaveReadEnable: consumers read there while the master is gone or busy.
SLAVE_READS: Final = frozenset(
    (
        RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.QUERY_CONSUMER_OFFSET,
        PrivateRequestCode.BULK_PULL,
    )
)  # fmt: skip

# Questions that may be meant for the master only: whoever reads up to an end must not take that of a replica which is
# behind for it.
_OF_OFFSETS: Final = frozenset(
    (
        RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET,
    )
)  # fmt: skip

Authority = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Tables:
    """What a server serves: handlers of decoded commands, and handlers that decode frames themselves."""

    handlers: Mapping[int, Handler]
    fast: Mapping[int, FastHandler]


def follower_tables(full: Tables, *, slave_reads: bool, commits: bool = False) -> Tables:
    """Return the tables of a follower: every request that could change something is refused as by Apache's slave.

    With `commits` consume offsets are kept here until the next ones come from the master, as Apache's slave does.
    """
    served = HARMLESS | SLAVE_READS if slave_reads else HARMLESS
    if commits:
        served |= {RequestCode.UPDATE_CONSUMER_OFFSET}
    return Tables(
        {
            code: _told_to(handler, code, _nobody) if code in served else reject
            for code, handler in full.handlers.items()
        },
        {code: handler if code in served else reject_frame for code, handler in full.fast.items()},
    )


def leader_tables(full: Tables, has_authority: Authority) -> Tables:
    """Return the tables of a leader: what is not harmless is served only while the leader has authority."""
    return Tables(
        {
            code: _told_to(handler, code, has_authority)
            if code in HARMLESS
            else _with_authority(handler, has_authority)
            for code, handler in full.handlers.items()
        },
        {code: _frames_with_authority(handler, has_authority) for code, handler in full.fast.items()},
    )


def reject(channel: Channel, command: Command) -> Command:
    """Refuse a request that this role does not serve."""
    return response(command, ResponseCode.SYSTEM_BUSY, remark=REJECTED)


def is_rejection(answer: Command) -> bool:
    """Tell whether a broker refused a request for its role."""
    return answer.code == ResponseCode.SYSTEM_BUSY and answer.remark == REJECTED


def reject_frame(channel: Channel, frame: Frame) -> None:
    """Refuse a frame that this role does not serve."""
    if not frame.flag & FLAG_ONEWAY:
        channel.send(response(frame, ResponseCode.SYSTEM_BUSY, remark=REJECTED))


def _nobody() -> bool:
    return False


def _told_to(handler: Handler, code: int, has_authority: Authority) -> Handler:
    """Return a handler that answers everybody, but what is meant for the master only where this broker is that."""
    if code not in _OF_OFFSETS:
        return handler

    def guarded(channel: Channel, command: Command) -> Answer:
        if MASTER_FIELD in command.ext and not has_authority():
            return reject(channel, command)
        return handler(channel, command)

    return guarded


def _with_authority(handler: Handler, has_authority: Authority) -> Handler:
    def guarded(channel: Channel, command: Command) -> Answer:
        return handler(channel, command) if has_authority() else reject(channel, command)

    return guarded


def _frames_with_authority(handler: FastHandler, has_authority: Authority) -> FastHandler:
    def guarded(channel: Channel, frame: Frame) -> None:
        if has_authority():
            handler(channel, frame)
        else:
            reject_frame(channel, frame)

    return guarded
