"""Consume offsets: how far each group has come, and requests about it."""

from aerobee.broker.offsets.progress import OffsetTables, ProgressAdmin
from aerobee.broker.offsets.requests import OffsetHandlers
from aerobee.broker.offsets.reset import ResetAdmin
from aerobee.broker.offsets.rules import ConsumerOffsets, OffsetTable, offset_key
from aerobee.broker.offsets.saving import OffsetSaver

__all__ = [
    "ConsumerOffsets", "OffsetHandlers", "OffsetSaver", "OffsetTable", "OffsetTables", "ProgressAdmin", "ResetAdmin",
    "offset_key",
]  # fmt: skip
