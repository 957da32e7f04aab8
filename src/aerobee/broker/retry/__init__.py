"""Messages that could not be consumed: retries with a growing delay, then the dead letters."""

from aerobee.broker.retry.rules import DLQ_QUEUE_NUMS, VERSION_WITH_OWN_LIMIT, retry_send_is_dead
from aerobee.broker.retry.sendback import SendBackHandler

__all__ = ["DLQ_QUEUE_NUMS", "SendBackHandler", "VERSION_WITH_OWN_LIMIT", "retry_send_is_dead"]
