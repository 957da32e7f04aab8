"""What the features of one broker share. Only the assembly and the administration know all of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aerobee.broker.config import BrokerConfig
from aerobee.broker.delay import DelayLevels
from aerobee.broker.flowcontrol import FlowControl
from aerobee.broker.log import LongPolls, Puts
from aerobee.broker.membership import Clients, ConsumerFilters, GroupLocks
from aerobee.broker.offsets import ConsumerOffsets
from aerobee.broker.stats import BrokerStats
from aerobee.broker.topics import Catalog
from aerobee.model.queue import MessageQueue
from aerobee.net.channel import Channel
from aerobee.runtime.seams import Clock, Entropy
from aerobee.store.messagestore import MessageStore


@dataclass(slots=True)
class BrokerState:
    """One broker's machines, tables and seams."""

    config: BrokerConfig
    # Name and address as the name servers know them.
    name: str
    address: str
    store_host: bytes
    store: MessageStore
    catalog: Catalog
    clients: Clients
    offsets: ConsumerOffsets
    filters: ConsumerFilters
    locks: GroupLocks[MessageQueue]
    polls: LongPolls[Any]
    stats: BrokerStats
    flow: FlowControl
    levels: DelayLevels
    puts: Puts
    clock: Clock
    entropy: Entropy
    # The open channel of a connection id, for pushing to clients.
    channel: Callable[[int], Channel | None]
    unique_id: Callable[[], str]
