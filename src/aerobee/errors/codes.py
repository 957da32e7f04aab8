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


class CodeRow(NamedTuple):
    """A row of the table."""

    exception: type[BrokerError]
    retriable: bool = False
    refresh_route: bool = False


REFUSALS: Final[dict[int, CodeRow]] = {
    1: CodeRow(SystemFailureError, retriable=True),
    2: CodeRow(SystemBusyError, retriable=True),
    3: CodeRow(RequestCodeNotSupportedError),
    4: CodeRow(TransactionError),
    10: CodeRow(NotDurableError),
    11: CodeRow(NotDurableError),
    12: CodeRow(NotDurableError),
    13: CodeRow(MessageIllegalError),
    14: CodeRow(ServiceNotAvailableError, retriable=True, refresh_route=True),
    15: CodeRow(VersionNotSupportedError),
    16: CodeRow(NoPermissionError, retriable=True, refresh_route=True),
    17: CodeRow(TopicNotExistError, retriable=True, refresh_route=True),
    18: CodeRow(TopicExistError),
    19: CodeRow(PullError, retriable=True),
    20: CodeRow(PullError, retriable=True),
    21: CodeRow(PullError),
    22: CodeRow(QueryNotFoundError),
    23: CodeRow(SubscriptionError),
    24: CodeRow(SubscriptionError, retriable=True),
    25: CodeRow(SubscriptionError, retriable=True),
    26: CodeRow(GroupNotExistError),
    27: CodeRow(SubscriptionError, retriable=True),
    28: CodeRow(SubscriptionError, retriable=True),
    29: CodeRow(InvalidParameterError),
    200: CodeRow(TransactionError),
    201: CodeRow(TransactionError),
    202: CodeRow(TransactionError),
    203: CodeRow(TransactionError),
    204: CodeRow(NoPermissionError, retriable=True),
    205: CodeRow(NoPermissionError, retriable=True),
    206: CodeRow(ConsumerError),
    207: CodeRow(ConsumerError, retriable=True),
    208: CodeRow(PollingError, retriable=True),
    209: CodeRow(PollingError, retriable=True),
    210: CodeRow(PollingError, retriable=True),
    211: CodeRow(BrokerNotExistError, refresh_route=True),
    212: CodeRow(SystemBusyError, retriable=True),
    213: CodeRow(ConsumerError),
    215: CodeRow(FlowControlError, retriable=True),
    501: CodeRow(NotLeaderError, retriable=True, refresh_route=True),
    604: CodeRow(IllegalOperationError),
    -1000: CodeRow(RpcError, retriable=True),
    -1002: CodeRow(RpcError, refresh_route=True),
    -1004: CodeRow(RpcError, retriable=True),
    -1006: CodeRow(RpcError, retriable=True),
    1500: CodeRow(GoAwayError, retriable=True),
    2000: CodeRow(ControllerError),
    2001: CodeRow(ControllerError),
    2002: CodeRow(ControllerError),
    2003: CodeRow(ControllerError),
    2004: CodeRow(ControllerError, retriable=True),
    2005: CodeRow(ControllerError),
    2006: CodeRow(ControllerError),
    2007: CodeRow(ControllerError, retriable=True),
    2008: CodeRow(ControllerError),
    2009: CodeRow(ControllerError),
    2010: CodeRow(ControllerError),
    2011: CodeRow(ControllerError),
    2012: CodeRow(ControllerError, retriable=True),
    2013: CodeRow(ControllerError),
    2014: CodeRow(ControllerError),
    2015: CodeRow(ControllerError, retriable=True),
    2016: CodeRow(ControllerError),
    2017: CodeRow(QuotaExceededError),
    2018: CodeRow(QuotaExceededError),
    3001: CodeRow(AuthNotExistError),
    3002: CodeRow(AuthNotExistError),
}

_UNKNOWN: Final = CodeRow(BrokerError)


def error_for(code: int, remark: str | None = None, broker: str | None = None) -> BrokerError:
    """Return the exception for a refused request. An unknown code gives a plain BrokerError that is not retried."""
    row = REFUSALS.get(code, _UNKNOWN)
    remark = remark or "the server refused the request without a reason"
    error = row.exception(remark, code=code, broker=broker, retriable=row.retriable)
    error.refresh_route = row.refresh_route
    return error
