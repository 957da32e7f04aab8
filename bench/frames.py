"""Template files for bench/loadgen.c: pre-encoded requests whose opaque (and queue offset) the generator patches."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from aerobee.hot.log.properties import encode_properties
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, encode_command, request
from aerobee.protocol.headers.pop import PopMessageRequestHeader
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.protocol.headers.send import SendMessageRequestHeaderV2

JSON, BINARY = 0, 1
# Ten digits, so that patching never changes a length.
OPAQUE = 1_234_567_890
_OFFSET = 1_234_567_890_123_456_789
BORN_MS = 1_763_200_000_000


def _template(frame: bytes, codec: int, patched: int | None) -> bytes:
    if codec == JSON:
        opaque_at = frame.index(b'"opaque":%d' % OPAQUE) + len(b'"opaque":')
    else:
        # length 4, header length 4, code 2, language 1, version 2
        opaque_at = 13
        assert frame[opaque_at : opaque_at + 4] == struct.pack(">i", OPAQUE)
    offset_at = -1 if patched is None else frame.index(b"%d" % patched)
    return struct.pack("=iiii", len(frame), opaque_at, 0 if codec == JSON else 1, offset_at) + frame


def once_templates(path: Path, frames: Iterable[bytes]) -> None:
    """Write JSON frames, each to be sent once. Their opaque is `OPAQUE`."""
    path.write_bytes(b"".join(_template(frame, JSON, None) for frame in frames))


def send_templates(
    path: Path,
    topic: str,
    queues: int,
    body_size: int,
    codec: int,
    *,
    topics: Sequence[str] = (),
    different: int = 1,
    sign: Callable[[Command], None] | None = None,
) -> None:
    """`different` sends per queue (of each of `topics`, where there are several), as Apache's Java producer writes
    them: tags, keys, unique key, WAIT. A signature does not cover the opaque, which is patched."""
    parts = []
    sends = ((one, queue, copy) for copy in range(different) for one in topics or (topic,) for queue in range(queues))
    for name, queue_id, copy in sends:
        unique = f"7F00000100002A139A55{copy * queues + queue_id:012X}"
        properties = encode_properties({"KEYS": "key-1", "UNIQ_KEY": unique, "WAIT": "true", "TAGS": "TagA"})
        header = SendMessageRequestHeaderV2(
            producer_group="bench_producer",
            topic=name,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=BORN_MS,
            flag=0,
            properties=properties.decode(),
            reconsume_times=0,
            unit_mode=False,
            batch=False,
        )
        command = request(
            RequestCode.SEND_MESSAGE_V2, header, bytes(i & 0x7F for i in range(body_size)), opaque=OPAQUE, codec=codec
        )
        command.language = "JAVA"
        if sign is not None:
            sign(command)
        parts.append(_template(encode_command(command), codec, None))
    path.write_bytes(b"".join(parts))


def pull_templates(
    path: Path, topic: str, group: str, queues: int, batch: int, codec: int, *, hold_ms: int = 0
) -> None:
    """One pull per queue, with its subscription in the request, so that no heartbeat is needed first."""
    parts = []
    for queue_id in range(queues):
        header = PullMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            queue_offset=_OFFSET,
            max_msg_nums=batch,
            sys_flag=4 | (2 if hold_ms else 0),  # subscription in the request; may be held
            commit_offset=0,
            suspend_timeout_millis=hold_ms,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
        )
        command = request(RequestCode.PULL_MESSAGE, header, opaque=OPAQUE, codec=codec)
        command.language = "JAVA"
        parts.append(_template(encode_command(command), codec, _OFFSET))
    path.write_bytes(b"".join(parts))


def pop_templates(path: Path, topic: str, group: str, queues: int, batch: int) -> None:
    """One pop per queue, as Apache's Java consumer asks. The time of its making is patched: Apache's broker refuses
    one that is older than half a second."""
    parts = []
    for queue_id in range(queues):
        header = PopMessageRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, max_msg_nums=batch, invisible_time=120_000,
            poll_time=0, born_time=BORN_MS, init_mode=0, exp_type="TAG", exp="*",
        )  # fmt: skip
        command = request(RequestCode.POP_MESSAGE, header, opaque=OPAQUE)
        command.language = "JAVA"
        parts.append(_template(encode_command(command), JSON, BORN_MS))
    path.write_bytes(b"".join(parts))
