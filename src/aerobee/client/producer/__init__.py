"""The producer: sends messages, batches, requests and transactions.

Other rooms and the outside import these names only; the modules behind them are private.
"""

from __future__ import annotations

from aerobee.client.producer.options import ProducerConfig, ProducerOptions
from aerobee.client.producer.producer import Producer
from aerobee.client.producer.publishinfo import PublishInfo
from aerobee.client.producer.requestreply import Replier
from aerobee.client.producer.selectors import MachineRoom, Random, RoundRobin, Selector, by_hash, hashed_index
from aerobee.client.producer.sender import Sender, SenderConfig
from aerobee.client.producer.sendoptions import (
    BATCH_MEANING,
    SEND_MEANING,
    BatchOptions,
    SendOptions,
    check_send_options,
)
from aerobee.client.producer.sendrequest import Body, SendRequest
from aerobee.client.producer.trace import TraceDispatcher, encode_sub_after, encode_sub_before
from aerobee.client.producer.transactions import OnCheck, Transaction, TransactionState

__all__ = [
    "by_hash", "RoundRobin", "Random", "MachineRoom", "BATCH_MEANING", "BatchOptions", "Body", "OnCheck", "Producer",
    "ProducerConfig", "ProducerOptions", "PublishInfo", "Replier", "SEND_MEANING", "Selector",
    "SendOptions", "SendRequest", "Sender", "SenderConfig", "TraceDispatcher", "Transaction",
    "TransactionState", "check_send_options", "encode_sub_after", "encode_sub_before", "hashed_index",
]  # fmt: skip
