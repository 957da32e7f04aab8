"""How commands print messages: as a line for people, or as a JSON object for scripts."""

from __future__ import annotations

import base64

import click

from aerobee.cli.output import print_json_line, show_time
from aerobee.hot.log.layout import COMPRESSED
from aerobee.model.compression import DecompressionError, compression_of, opening
from aerobee.model.message import Message, unfolded

_BODY_CHARACTERS_MAX = 200


def message_fields(message: Message, all_fields: bool) -> dict[str, object]:
    """Return a message as JSON members. `body` is text if it is UTF-8, else base64; `body_encoding` tells which."""
    try:
        body, encoding = message.body.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        body, encoding = base64.b64encode(message.body).decode(), "base64"
    fields: dict[str, object] = {
        "topic": message.topic,
        "broker": message.broker,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.message_id,
        "keys": message.keys,
        "tags": message.tags,
        "body": body,
        "body_encoding": encoding,
        "properties": dict(message.properties),
        "born_timestamp": message.born_timestamp,
        "store_timestamp": message.store_timestamp,
    }
    try:
        compression = compression_of(message.sys_flag)
    except DecompressionError:
        compression = None
    if compression is not None:
        fields["body_compression"] = compression.name
    if all_fields:
        fields |= {
            "reconsume_times": message.reconsume_times,
            "commitlog_offset": message.commitlog_offset,
            "born_host": message.born_host,
            "store_host": message.store_host,
            "sys_flag": message.sys_flag,
            "system_properties": dict(message.system_properties),
        }
    return fields


def message_line(message: Message) -> str:
    """Return one line with store time, place, tag, key and the beginning of the body."""
    size_max = _BODY_CHARACTERS_MAX * 4
    start = opening(message.body, message.sys_flag, size_max + 1)
    text = start[:size_max].decode("utf-8", "replace")
    shown = "".join(c if c.isprintable() else "." for c in text[:_BODY_CHARACTERS_MAX])
    if len(text) > _BODY_CHARACTERS_MAX or len(start) > size_max:
        compressed = " compressed" if message.sys_flag & COMPRESSED else ""
        shown += f"... ({len(message.body)} bytes{compressed})"
    where = f"{message.broker}/{message.queue_id}/{message.queue_offset}"
    marks = "".join(f" {mark}" for mark in (f"[{message.tags}]" if message.tags else "", message.keys) if mark)
    return f"{show_time(message.store_timestamp)} {where}{marks}  {shown}"


def print_message(message: Message, as_json: bool) -> None:
    if as_json:
        print_json_line(message_fields(unfolded(message), all_fields=False))
    else:
        click.echo(message_line(message))
