"""Headers of our own requests about the batches of sinks (docs/formats/private.md)."""

from __future__ import annotations

from aerobee.protocol.headers.base import Header, Int32, Int64


class BatchBeginRequestHeader(Header, kw_only=True):
    """BATCH_BEGIN: this run of the query takes the epoch; from now on what older ones say is refused."""

    query_id: str
    epoch: Int64
    run: str
    lease_ms: Int64 = 0


class BatchStatusRequestHeader(Header, kw_only=True):
    """BATCH_STATUS: how a batch stands. Of the query's driver it renews the lease.

    With `epoch` it is refused unless that driver is the newest; with `run` alone the answer says whether that run was
    replaced.
    """

    query_id: str
    batch_id: Int64
    lease_ms: Int64 = 0
    epoch: Int64 = 0
    run: str = ""


class BatchStatusResponseHeader(Header, kw_only=True):
    """`state` is open, prepared or committed; the body is the plan, if there is one."""

    state: str
    # The last batch of the query that is committed here; -1: none.
    committed: Int64
    # Chunks of it whose rows are not all readable yet.
    remaining: Int64
    # The driver that began last: nobody, where they are 0 and empty. Whether the run that asked was one before it.
    epoch: Int64 = 0
    run: str = ""
    replaced: bool = False
    # Rows of the batch that is asked for, the last one committed, that could not be stored for their readers.
    set_aside: Int64 = 0
    # The broker groups of its plan, apart by commas.
    witnesses: str | None = None
    # JSON: by topic, the broker groups that the keys of the batch are spread over.
    keyed: str | None = None


class BatchRowsRequestHeader(Header, kw_only=True):
    """BATCH_ROWS: rows of one queue, laid end to end in the body as in SEND_BATCH_MESSAGE.

    With `attempt` they are held until the batch is committed; with `keys` (digests of 16 bytes, which the body begins
    with) they are stored at once, without those whose key the batch has stored before.
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
    # The broker groups that keys are spread over, apart by commas.
    groups: str | None = None


class BatchRowsResponseHeader(Header, kw_only=True):
    """How many rows were new."""

    stored: Int32


class BatchEndRequestHeader(Header, kw_only=True):
    """BATCH_END: `action` is prepare, commit or abort; the body is the plan (nothing, or a plan, for abort)."""

    query_id: str
    batch_id: Int64
    action: str
    lease_ms: Int64 = 0
    epoch: Int64 = 0
    run: str = ""
