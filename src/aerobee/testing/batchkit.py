"""Frames of sinks for tests of a broker: rows of a batch, rows with keys, plans and ends."""

from __future__ import annotations

import json

from aerobee.hot.log.batch import encode_batch
from aerobee.protocol.codes import PrivateRequestCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.batches import BatchEndRequestHeader, BatchRowsRequestHeader

LEASE_MS = 120_000
GROUP = "broker-a"


def batch_body(*bodies: str, properties: str = "") -> bytes:
    """Return the body of a chunk of rows."""
    block = f"UNIQ_KEY\x01{{}}\x02{properties}"
    return encode_batch([(0, body.encode(), block.format(body).encode()) for body in bodies])


def rows(
    *bodies: str, query: str = "Q", batch: int = 0, attempt: str = "a1", sequence: int = 0, queue_id: int = 0,
    properties: str = "",
) -> Command:  # fmt: skip
    """Return a chunk of rows."""
    header = BatchRowsRequestHeader(
        query_id=query, batch_id=batch, topic="T", queue_id=queue_id, producer_group="P", default_topic="TBW102",
        lease_ms=LEASE_MS, attempt=attempt, sequence=sequence,
    )  # fmt: skip
    return request(PrivateRequestCode.BATCH_ROWS, header, batch_body(*bodies, properties=properties), opaque=1)


def keyed(*bodies: str, query: str = "Q", batch: int = 0, queue_id: int = 0, groups: str = GROUP) -> Command:
    """Return rows whose key is their text."""
    header = BatchRowsRequestHeader(
        query_id=query, batch_id=batch, topic="T", queue_id=queue_id, producer_group="P", default_topic="TBW102",
        lease_ms=LEASE_MS, keys=len(bodies), groups=groups,
    )  # fmt: skip
    body = b"".join(one.encode().ljust(16) for one in bodies) + batch_body(*bodies)
    return request(PrivateRequestCode.BATCH_ROWS, header, body, opaque=1)


def plan(plan_id: str = "p1", **attempts: int) -> bytes:
    """Return a plan: attempts with the number of their chunks."""
    return json.dumps({"id": plan_id, "groups": {GROUP: attempts}}).encode()


def ended(action: str, body: bytes = b"", *, query: str = "Q", batch: int = 0) -> Command:
    """Return the end of a batch: prepare, commit or abort."""
    header = BatchEndRequestHeader(query_id=query, batch_id=batch, action=action, lease_ms=LEASE_MS)
    return request(PrivateRequestCode.BATCH_END, header, body, opaque=2)
