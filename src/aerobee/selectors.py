"""Ways for a producer to choose the queue of a message, to be given as `selector=`.

    from aerobee import Producer, selectors

    async with Producer("localhost:9876") as producer:
        await producer.send("orders", b"hi", selector=selectors.by_hash("customer-42"))

Without a selector a producer takes the writable queues of the topic in turn (round robin), and leaves out the brokers
that just failed. A selector of your own is a function of the queues and the message that returns one of the queues.
"""

from __future__ import annotations

from aerobee.client.producer import MachineRoom, Random, RoundRobin, Selector, by_hash

__all__ = ["MachineRoom", "Random", "RoundRobin", "Selector", "by_hash"]
