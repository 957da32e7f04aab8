"""How every feature writes into the log and reads it back: puts, copies, journals, wake-ups, rules of sends."""

from aerobee.broker.log.arrivals import SWEEP_INTERVAL_S, Arrivals, LongPolls
from aerobee.broker.log.copies import copy_of, delay_level, encode_stored, fitting_block, real_place
from aerobee.broker.log.following import FollowedLog
from aerobee.broker.log.journal import Journal, saved_place
from aerobee.broker.log.localwrites import LocalWrites, late_code
from aerobee.broker.log.puts import SIZE_BOUNDS, STORED, Done, PutCounts, Puts, SendSettings
from aerobee.broker.log.sendrules import (
    BATCH_COUNT_MAX,
    CLEANUP_POLICY,
    SHORT_PROPERTIES_MAX,
    SPECIAL_FLAGS,
    WRAPPED,
    Candidate,
    batch_refusal,
    body_size_max,
    key_refusal,
    largest_body,
    message_refusal,
    name_refusal,
    row_refusal,
    topic_refusal,
)
from aerobee.broker.log.tail import Mark, queue_records, read_soon, record_bytes, scan_marks

__all__ = [
    "Arrivals", "BATCH_COUNT_MAX", "CLEANUP_POLICY", "Candidate", "Done", "FollowedLog", "Journal", "LocalWrites",
    "LongPolls", "Mark", "PutCounts", "Puts", "SHORT_PROPERTIES_MAX", "SIZE_BOUNDS", "SPECIAL_FLAGS", "STORED",
    "SWEEP_INTERVAL_S", "SendSettings", "WRAPPED", "batch_refusal", "body_size_max", "copy_of", "delay_level",
    "encode_stored", "fitting_block", "key_refusal", "largest_body", "late_code", "message_refusal",
    "name_refusal", "queue_records", "read_soon", "real_place", "record_bytes", "row_refusal", "saved_place",
    "scan_marks", "topic_refusal",
]  # fmt: skip
