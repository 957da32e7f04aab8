"""The exception of each response code, whether the request may be retried, and whether the route is stale.

All parts of Aerobee translate response codes by this table.
RocketMQ: RemotingSysResponseCode, ResponseCode; DefaultMQProducer.retryResponseCodes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from aerobee.errors import BrokerError


class SystemFailureError(BrokerError):
    """The server failed (SYSTEM_ERROR)."""


class SystemBusyError(BrokerError):
    """The server sheds load; try later or elsewhere."""


class FlowControlError(BrokerError):
    """A quota or a flow limit was reached; slow down."""


class RequestCodeNotSupportedError(BrokerError):
    """The server does not know this request."""


class TransactionError(BrokerError):
    """A transaction could not be continued."""


class NotDurableError(BrokerError):
    """The message is stored, but not as safely as asked for: the flush or a replica was too slow or is missing."""


class MessageIllegalError(BrokerError):
    """The message breaks a rule of the broker (size, name, properties)."""


class InvalidParameterError(BrokerError):
    """The request's own values are wrong."""


class ServiceNotAvailableError(BrokerError):
    """The broker does not serve this now: starting, stopping, a slave, or its disk is full."""


class VersionNotSupportedError(BrokerError):
    """The client's version is too old for this."""


class NoPermissionError(BrokerError):
    """Authentication, access control or the permission of the topic or broker does not allow this."""


class TopicNotExistError(BrokerError):
    """The topic does not exist and may not be created."""


class TopicExistError(BrokerError):
    """The topic exists already."""


class PullError(BrokerError):
    """A pull brought no message: not found, retry at once, or offset moved."""


class QueryNotFoundError(BrokerError):
    """Nothing matches the query."""


class SubscriptionError(BrokerError):
    """The subscription is unknown, stale or cannot be parsed."""


class GroupNotExistError(BrokerError):
    """The consumer group does not exist and may not be created."""


class ConsumerError(BrokerError):
    """The consumer is not online, too slow or of the wrong kind."""


class PollingError(BrokerError):
    """A long poll ended without messages: none came, too many wait, or it timed out."""


class BrokerNotExistError(BrokerError):
    """No such broker is known."""


class NotLeaderError(BrokerError):
    """Another broker leads this queue now."""


class IllegalOperationError(BrokerError):
    """The operation is not allowed in this state."""


class RpcError(BrokerError):
    """A server could not reach the peer it needed to."""


class GoAwayError(BrokerError):
    """The server asks the client to reconnect."""


class ControllerError(BrokerError):
    """The controller refused the request."""


class QuotaExceededError(BrokerError):
    """A quota of lite topics or subscriptions is used up."""


class AuthNotExistError(BrokerError):
    """The user or the policy does not exist."""


class Refusal(NamedTuple):
    """A row of the table."""

    exception: type[BrokerError]
    retriable: bool = False
    refresh_route: bool = False


REFUSALS: Final[dict[int, Refusal]] = {
    1: Refusal(SystemFailureError, retriable=True),
    2: Refusal(SystemBusyError, retriable=True),
    3: Refusal(RequestCodeNotSupportedError),
    4: Refusal(TransactionError),
    10: Refusal(NotDurableError),
    11: Refusal(NotDurableError),
    12: Refusal(NotDurableError),
    13: Refusal(MessageIllegalError),
    14: Refusal(ServiceNotAvailableError, retriable=True, refresh_route=True),
    15: Refusal(VersionNotSupportedError),
    16: Refusal(NoPermissionError, retriable=True, refresh_route=True),
    17: Refusal(TopicNotExistError, retriable=True, refresh_route=True),
    18: Refusal(TopicExistError),
    19: Refusal(PullError, retriable=True),
    20: Refusal(PullError, retriable=True),
    21: Refusal(PullError),
    22: Refusal(QueryNotFoundError),
    23: Refusal(SubscriptionError),
    24: Refusal(SubscriptionError, retriable=True),
    25: Refusal(SubscriptionError, retriable=True),
    26: Refusal(GroupNotExistError),
    27: Refusal(SubscriptionError, retriable=True),
    28: Refusal(SubscriptionError, retriable=True),
    29: Refusal(InvalidParameterError),
    200: Refusal(TransactionError),
    201: Refusal(TransactionError),
    202: Refusal(TransactionError),
    203: Refusal(TransactionError),
    204: Refusal(NoPermissionError, retriable=True),
    205: Refusal(NoPermissionError, retriable=True),
    206: Refusal(ConsumerError),
    207: Refusal(ConsumerError, retriable=True),
    208: Refusal(PollingError, retriable=True),
    209: Refusal(PollingError, retriable=True),
    210: Refusal(PollingError, retriable=True),
    211: Refusal(BrokerNotExistError, refresh_route=True),
    212: Refusal(SystemBusyError, retriable=True),
    213: Refusal(ConsumerError),
    215: Refusal(FlowControlError, retriable=True),
    501: Refusal(NotLeaderError, retriable=True, refresh_route=True),
    604: Refusal(IllegalOperationError),
    -1000: Refusal(RpcError, retriable=True),
    -1002: Refusal(RpcError, refresh_route=True),
    -1004: Refusal(RpcError, retriable=True),
    -1006: Refusal(RpcError, retriable=True),
    1500: Refusal(GoAwayError, retriable=True),
    2000: Refusal(ControllerError),
    2001: Refusal(ControllerError),
    2002: Refusal(ControllerError),
    2003: Refusal(ControllerError),
    2004: Refusal(ControllerError, retriable=True),
    2005: Refusal(ControllerError),
    2006: Refusal(ControllerError),
    2007: Refusal(ControllerError, retriable=True),
    2008: Refusal(ControllerError),
    2009: Refusal(ControllerError),
    2010: Refusal(ControllerError),
    2011: Refusal(ControllerError),
    2012: Refusal(ControllerError, retriable=True),
    2013: Refusal(ControllerError),
    2014: Refusal(ControllerError),
    2015: Refusal(ControllerError, retriable=True),
    2016: Refusal(ControllerError),
    2017: Refusal(QuotaExceededError),
    2018: Refusal(QuotaExceededError),
    3001: Refusal(AuthNotExistError),
    3002: Refusal(AuthNotExistError),
}

_UNKNOWN: Final = Refusal(BrokerError)


def error_for(code: int, remark: str | None = None, broker: str | None = None) -> BrokerError:
    """Return the exception for a refused request. An unknown code gives a plain BrokerError that is not retried."""
    row = REFUSALS.get(code, _UNKNOWN)
    remark = remark or "the server refused the request without a reason"
    error = row.exception(remark, code=code, broker=broker, retriable=row.retriable)
    error.refresh_route = row.refresh_route
    return error
