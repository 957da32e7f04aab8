"""Messages for later: the delay levels, and timers for any time; recalling a timed message."""

from aerobee.broker.delay.levels import DelayLevels, put_away
from aerobee.broker.delay.recall import RecallHandler
from aerobee.broker.delay.scheduler import Scheduler
from aerobee.broker.delay.timers.checkpoint import TimerCheckpoint, TimerProgressHandlers
from aerobee.broker.delay.timers.driver import TimerService
from aerobee.broker.delay.timers.handles import decode_handle, handle_of
from aerobee.broker.delay.timers.ledger import TimerProgress
from aerobee.broker.delay.timers.placing import Placing

__all__ = [
    "DelayLevels", "Placing", "RecallHandler", "Scheduler", "TimerCheckpoint", "TimerProgress", "TimerProgressHandlers",
    "TimerService", "decode_handle", "handle_of", "put_away",
]  # fmt: skip
