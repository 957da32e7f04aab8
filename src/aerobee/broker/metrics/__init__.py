"""What monitoring asks of a broker: metrics under Apache's names and ours, and whether it is alive and ready."""

from aerobee.broker.metrics.health import STALE_S, Health
from aerobee.broker.metrics.lag import Backlog, LagTable
from aerobee.broker.metrics.page import BrokerMetrics, Measured, Outside

__all__ = ["STALE_S", "BrokerMetrics", "Backlog", "Health", "LagTable", "Outside", "Measured"]
