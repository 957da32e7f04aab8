"""What a store counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class StoreCounters:
    """Sums since the store was opened. RocketMQ: StoreStatsService."""

    appended: int = 0
    appended_bytes: int = 0
    refused_full: int = 0
    syncs: int = 0
    get_found: int = 0
    get_miss: int = 0
    transferred: int = 0
    transferred_bytes: int = 0
    cold_reads: int = 0
    dispatch_failures: int = 0
