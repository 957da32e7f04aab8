"""How a call ends: the codes of apache.rocketmq.v2, and which of them an answer of a broker becomes."""

from __future__ import annotations

from typing import Final

from aerobee.errors import AerobeeError, RequestTimeoutError
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.values import PbStatus


class RefusedCallError(AerobeeError):
    """A call that is answered with a code other than OK. `message` is for the client."""

    def __init__(self, status: Code, message: str) -> None:
        super().__init__(message)
        self.status = status


OK: Final = PbStatus(Code.OK, "OK")

# What brokers answer. CLUSTER mode of Apache's proxy translates less; LOCAL mode makes everything 50001.
_BROKER: Final = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.NO_MESSAGE: Code.INVALID_RECEIPT_HANDLE,
    ResponseCode.POLLING_FULL: Code.TOO_MANY_REQUESTS,
    ResponseCode.FLOW_CONTROL: Code.TOO_MANY_REQUESTS,
    ResponseCode.QUERY_NOT_FOUND: Code.OFFSET_NOT_FOUND,
    ResponseCode.LMQ_QUOTA_EXCEEDED: Code.LITE_TOPIC_QUOTA_EXCEEDED,
    ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
}


def code_of(broker_code: int) -> Code:
    """Return what a broker's answer is to a client."""
    return _BROKER.get(broker_code, Code.INTERNAL_SERVER_ERROR)


def refusal_of(error: BaseException) -> RefusedCallError:
    """Return how a call ends that raised this error. What nobody expected is told without its details."""
    if isinstance(error, RefusedCallError):
        return error
    if isinstance(error, RequestTimeoutError):
        return RefusedCallError(Code.PROXY_TIMEOUT, error.message)
    if isinstance(error, AerobeeError):
        code = Code.INTERNAL_SERVER_ERROR if error.code is None else code_of(error.code)
        return RefusedCallError(code, error.message)
    if isinstance(error, TimeoutError):
        return RefusedCallError(Code.PROXY_TIMEOUT, "no answer in time")
    return RefusedCallError(Code.INTERNAL_SERVER_ERROR, "the call failed; the server's log says more")
