"""How many bytes a batch reads, for the progress report of a query: brokers add up the sizes of messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aerobee.client.blocking import BlockingClient, Call
from aerobee.errors import AerobeeError
from aerobee.model.numbers import int_or
from aerobee.protocol.codes import PrivateRequestCode, ResponseCode
from aerobee.protocol.headers.bulkpull import OFFSETS_ONLY, BulkPullRequestHeader
from pyspark_rocketmq.source.planning import QueueRange


def stored_bytes(client: BlockingClient, ranges: Iterable[QueueRange]) -> int | None:
    """Return how many bytes the messages of these ranges have in the log, or None where a broker does not tell.

    Apache's broker does not know the request. A report is no reason to fail, so an error is no answer too.
    """
    by_address: dict[str, list[QueueRange]] = {}
    for one in ranges:
        address = client.address_of(one.queue)
        if address is None:
            return None
        by_address.setdefault(address, []).append(one)
    total = 0
    try:
        for address, own in by_address.items():
            while own:
                total, own = _told(client, address, own, total)
    except (AerobeeError, _UntoldError):
        return None
    return total


class _UntoldError(Exception):
    """A broker that does not say how large its messages are."""


def _told(
    client: BlockingClient, address: str, ranges: Sequence[QueueRange], total: int
) -> tuple[int, list[QueueRange]]:
    """Ask for the next messages of each range. Return the new sum, and what is left of the ranges."""
    left: list[QueueRange] = []
    for one, answer in zip(ranges, client.ask(address, [_call(one) for one in ranges]), strict=True):
        following = int_or(answer.ext.get("nextBeginOffset"), -1)
        size = int_or(answer.ext.get("size"), -1)
        if answer.code != ResponseCode.SUCCESS or size < 0 or following <= one.start:
            raise _UntoldError
        total += size
        if following < one.end:
            left.append(QueueRange(one.queue, following, one.end, one.generation))
    return total, left


def _call(one: QueueRange) -> Call:
    header = BulkPullRequestHeader(
        topic=one.queue.topic, queue_id=one.queue.queue_id, queue_offset=one.start, end_offset=one.end,
        max_msg_bytes=1, bname=one.queue.broker_name, generation=one.generation, parts=OFFSETS_ONLY,
    )  # fmt: skip
    return Call(PrivateRequestCode.BULK_PULL, header)
