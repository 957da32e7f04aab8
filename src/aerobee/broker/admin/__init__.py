"""What operators ask of the broker itself: settings, runtime info, statistics, queues, retention."""

from aerobee.broker.admin.livesettings import LiveSettings, forget_kept
from aerobee.broker.admin.queues import QueueAdmin
from aerobee.broker.admin.refused import RefusedRequests
from aerobee.broker.admin.retention import RetentionDriver
from aerobee.broker.admin.runtime import RuntimeAdmin
from aerobee.broker.admin.runtimeinfo import DiskSpace, RuntimeInfo
from aerobee.broker.admin.settings import ConfigAdmin
from aerobee.broker.admin.visibility import VisibilityDriver

__all__ = [
    "ConfigAdmin",
    "DiskSpace",
    "LiveSettings",
    "QueueAdmin",
    "RefusedRequests",
    "RetentionDriver",
    "RuntimeAdmin",
    "RuntimeInfo",
    "VisibilityDriver",
    "forget_kept",
]
