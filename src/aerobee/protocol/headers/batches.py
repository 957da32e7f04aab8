"""Headers of our own requests about the batches of sinks (docs/formats/private.md)."""

from __future__ import annotations

from aerobee.protocol.headers.base import Header, Int32, Int64


class BatchBeginRequestHeader(Header, kw_only=True):
    """BATCH_BEGIN: this run of the query takes the epoch. The broker then refuses requests of older runs."""

    query_id: str
    epoch: Int64
    run: str
    lease_ms: Int64 = 0


class BatchStatusRequestHeader(Header, kw_only=True):
    """BATCH_STATUS asks for the state of a batch. It renews the lease if the driver of the query sends it.

    With `epoch`, the broker refuses it unless that driver is the newest. With `run` alone, the answer tells whether
    that run was replaced.
    """

    query_id: str
    batch_id: Int64
    lease_ms: Int64 = 0
    epoch: Int64 = 0
    run: str = ""


class BatchStatusResponseHeader(Header, kw_only=True):
    """Answer to BATCH_STATUS. `state` is open, prepared or committed. The body is the plan, if there is one."""

    state: str
    # The last batch of the query that is committed on this broker, -1 if there is none.
    committed: Int64
    # The number of its chunks whose rows are not all readable yet.
    remaining: Int64
    # The driver that began last; 0 and '' if none did. `replaced` tells whether the run that asks is an older one.
    epoch: Int64 = 0
    run: str = ""
    replaced: bool = False
    # How many rows of this batch, if it is the last one committed, could not be stored for their readers.
    set_aside: Int64 = 0
    # The broker groups of its plan, separated by commas.
    witnesses: str | None = None
    # In JSON, by topic: the broker groups that the keys of the batch are spread over.
    keyed: str | None = None


class BatchRowsRequestHeader(Header, kw_only=True):
    """BATCH_ROWS: rows of one queue. The body has them one after the other, as in SEND_BATCH_MESSAGE.

    With `attempt`, the broker holds them until the batch is committed. With `keys`, the body begins with that many
    digests of 16 bytes. The broker then stores the rows at once, except those whose key the batch has stored before.
    """

    query_id: str
    batch_id: Int64
    topic: str
    queue_id: Int32
    producer_group: str
    default_topic: str = ""
    default_topic_queue_nums: Int32 = 4
    lease_ms: Int64 = 0
    epoch: Int64 = 0
    run: str = ""
    attempt: str | None = None
    sequence: Int32 = 0
    keys: Int32 = 0
    # The broker groups that keys are spread over, separated by commas.
    groups: str | None = None


class BatchRowsResponseHeader(Header, kw_only=True):
    """Answer to BATCH_ROWS: how many rows were new."""

    stored: Int32


class BatchEndRequestHeader(Header, kw_only=True):
    """BATCH_END. `action` is prepare, commit or abort. The body is the plan; for abort it may be empty."""

    query_id: str
    batch_id: Int64
    action: str
    lease_ms: Int64 = 0
    epoch: Int64 = 0
    run: str = ""
