"""At-least-once delivery: plain sends and batches to any RocketMQ broker, acknowledged before write() ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from aerobee.client.core import SelectorError
from aerobee.client.producer import SendRequest
from aerobee.protocol.codes import RequestCode
from pyspark_rocketmq.sink.client import BODY_SIZE_MAX, SinkClient
from pyspark_rocketmq.sink.layout import Layout
from pyspark_rocketmq.sink.outbox import Outbox, RowChunk
from pyspark_rocketmq.sink.rows import RowEncoder
from pyspark_rocketmq.sinkoptions import SinkOptions

_LOOK_S: Final = 0.2


def write_at_least_once(options: SinkOptions, layout: Layout, batches: Iterable[pa.RecordBatch]) -> int:
    """Store every row at the level the broker is set to, and return their number. Anything less raises."""
    with SinkClient(options) as client:
        return send_rows(client, layout, batches)


def send_rows(client: SinkClient, layout: Layout, batches: Iterable[pa.RecordBatch]) -> int:
    """Store every row over an open client, and return their number."""
    sender = client.sender

    patience_s = client.options.endpoint.retry_timeout_ms / 1000

    async def post(chunk: RowChunk) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + patience_s
        while True:
            try:
                await sender.send(_outgoing(client, chunk), chunk.queue, retries=sender.config.retries)
            except SelectorError:  # the queue was there when the rows were encoded: its broker is away
                if loop.time() >= until_s:
                    raise
            else:
                return
            await asyncio.sleep(_LOOK_S)

    outbox = Outbox(client, post, plain=True)
    encoder = RowEncoder(layout, client.options.topic, BODY_SIZE_MAX, client.next_id)
    return outbox.send(encoder, batches)


def _outgoing(client: SinkClient, chunk: RowChunk) -> SendRequest:
    if chunk.alone is not None:
        body, properties = chunk.alone
        return SendRequest(chunk.topic, chunk.topic, body, "", properties.decode("utf-8", "replace"), len(body))
    body = chunk.body()
    return SendRequest(
        chunk.topic,
        chunk.topic,
        body,
        "",
        f"UNIQ_KEY\x01{client.next_id()}\x02",
        len(body),
        code=RequestCode.SEND_BATCH_MESSAGE,
    )
