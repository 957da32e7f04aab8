"""The format and schema that are stored for a topic: an entry of the name servers' key-value table.

The table is RocketMQ's own (`mqadmin updateKvConfig`), so this works with any cluster. The key is the topic, and the
value is JSON: `{"v":1,"format":"json","schema":"id bigint"}`. Passwords are never stored.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from aerobee.errors import AerobeeError
from aerobee.errors.codes import error_for
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.kv import GetKVConfigRequestHeader, PutKVConfigRequestHeader
from pyspark_rocketmq.formats.options import BODY_OPTIONS, REGISTERED, BodySettings, body_settings
from pyspark_rocketmq.options import OptionError, read_options

if TYPE_CHECKING:
    from aerobee.client.blocking import BlockingClient

NAMESPACE: Final = "AEROBEE_SCHEMAS"
_VERSION: Final = 1
_KEPT: Final = ("format", "schema", "schemaRegistry", "schemaSubject", "message", "payload", "delimiter")


class StoredSchemaError(AerobeeError):
    """The name server's entry for a topic cannot be understood."""


def encode(options: dict[str, str]) -> str:
    """Return the entry for these options. Raises OptionError for an option that is not stored."""
    for name in options:
        if name not in _KEPT:
            raise OptionError(f"option {name} cannot be stored for a topic")
    decode("", json.dumps({"v": _VERSION, **options}))
    return json.dumps({"v": _VERSION, **options}, sort_keys=True, ensure_ascii=False)


def decode(topic: str, text: str) -> BodySettings:
    """Return the settings of an entry, or raise StoredSchemaError or OptionError."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("v") != _VERSION:
        raise StoredSchemaError(f"the schema that is stored for topic {topic} cannot be read by this version")
    options = {name: value for name, value in found.items() if name in _KEPT and isinstance(value, str)}
    settings = body_settings(read_options(options, BODY_OPTIONS))
    if settings is None or settings.format == REGISTERED:
        raise StoredSchemaError(f"the schema that is stored for topic {topic} has no format")
    return settings


def read_stored(client: BlockingClient, topic: str) -> BodySettings | None:
    """Return what is stored for a topic, or None."""
    from aerobee.client.blocking import Call

    header = GetKVConfigRequestHeader(namespace=NAMESPACE, key=topic)
    answer = client.ask_name_server(Call(RequestCode.GET_KV_CONFIG, header))
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    if answer.code != ResponseCode.SUCCESS:
        raise error_for(answer.code, answer.remark or "", "the name server")
    return decode(topic, answer.ext.get("value", ""))


def register(name_server: str, topic: str, **options: str) -> None:
    """Store the format and the schema of a topic's bodies on every name server.

    The options are those of reading: `register("localhost:9876", "orders", format="json", schema="id bigint")`. What is
    stored before is replaced. The schema is checked first.
    """
    from aerobee.client.blocking import BlockingClient, Call
    from aerobee.client.core import client_config
    from aerobee.model.names import topic_problem
    from aerobee.runtime.process import environment
    from pyspark_rocketmq.formats.definition import define

    problem = topic_problem(topic)
    if problem:
        raise OptionError(problem)
    text = encode(options)
    define(decode(topic, text), f"{topic}-value", None, None)
    config = client_config(name_server, environment())
    client, servers = BlockingClient(config), config.namesrv
    call = Call(RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader(namespace=NAMESPACE, key=topic, value=text))
    for server in servers:
        answer = client.ask(server, [call])[0]
        if answer.code != ResponseCode.SUCCESS:
            raise error_for(answer.code, answer.remark or "", f"name server {server}")
