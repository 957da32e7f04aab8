"""The options for typed bodies, which source and sink share, and their meaning together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark_rocketmq.options import Option, OptionError, one_of, text

JSON: Final = "json"
AVRO: Final = "avro"
PROTOBUF: Final = "protobuf"
CSV: Final = "csv"
MSGPACK: Final = "msgpack"
FORMATS: Final = (JSON, AVRO, PROTOBUF, CSV, MSGPACK)
# The format and the schema that are stored for the topic: see `stored.py`.
REGISTERED: Final = "registered"

PERMISSIVE: Final = "permissive"
FAILFAST: Final = "failfast"
DROPMALFORMED: Final = "dropmalformed"


def _one_character(value: str) -> str:
    found = {"\\t": "\t", "tab": "\t"}.get(value, value)
    if len(found) != 1 or found in '"\r\n':
        raise ValueError("is not one character")
    return found


def _url(value: str) -> str:
    found = text(value).rstrip("/")
    if not found.startswith(("http://", "https://")):
        raise ValueError("does not begin with http:// or https://")
    if "@" in found.split("/")[2]:
        raise ValueError("contains a user: use options schemaRegistryUser and schemaRegistryPassword")
    return found


BODY_OPTIONS: Final = (
    Option("format", one_of(*FORMATS, REGISTERED), help="the format of bodies: their fields become columns"),
    Option("mode", one_of(PERMISSIVE, FAILFAST, DROPMALFORMED), help="what a body that cannot be read does"),
    Option("schema", text, help="the fields of a body, in the words of Spark, of Avro or of Protobuf"),
    Option("schemaFile", text, help="a file of the driver with the schema"),
    Option("schemaRegistry", _url, help="the URL of a schema registry; bodies begin with the id of their schema"),
    Option("schemaSubject", text, help="the name of the schema in the registry; TOPIC-value if it is missing"),
    Option("schemaRegistryUser", text, help="the user of the registry", secret=True),
    Option("schemaRegistryPassword", text, help="the password of the registry", secret=True),
    Option("message", text, help="the Protobuf message, if the schema has several"),
    Option("payload", text, help="put the fields into one STRUCT column of this name"),
    Option("delimiter", _one_character, help="the character between CSV fields", aliases=("sep",)),
)
_NAMES: Final = tuple(option.name for option in BODY_OPTIONS if option.name != "format")


@dataclass(frozen=True, slots=True)
class RegistryAccess:
    """A schema registry, and the credentials for it. Its text contains no secrets."""

    url: str
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class BodySettings:
    """What the options say about bodies."""

    format: str
    mode: str = PERMISSIVE
    schema: str | None = None
    schema_file: str | None = None
    registry: RegistryAccess | None = None
    subject: str | None = None
    message: str | None = None
    payload: str | None = None
    delimiter: str = ","


def body_settings(values: Mapping[str, Any]) -> BodySettings | None:
    """Return the settings for typed bodies, or None if option format is not set."""
    given = [name for name in _NAMES if values[name] is not None]
    kind = values["format"]
    if kind is None:
        if given:
            raise OptionError(f"option {given[0]} needs option format ({', '.join(FORMATS)})")
        return None
    sources = [name for name in ("schema", "schemaFile", "schemaRegistry") if values[name] is not None]
    if len(sources) > 1:
        raise OptionError(f"options {' and '.join(sources)}: give one of them")
    if kind == REGISTERED and sources:
        raise OptionError(f"option {sources[0]}: format=registered takes the schema that is stored for the topic")
    _require_kind(values, "message", (PROTOBUF, REGISTERED))
    _require_kind(values, "delimiter", (CSV, REGISTERED))
    if values["schemaRegistry"] is None:
        for name in ("schemaSubject", "schemaRegistryUser", "schemaRegistryPassword"):
            if values[name] is not None and kind != REGISTERED:
                raise OptionError(f"option {name} needs option schemaRegistry")
    elif kind == CSV:
        raise OptionError("option schemaRegistry: registries have no schemas for CSV")
    return BodySettings(
        kind,
        values["mode"] or PERMISSIVE,
        values["schema"],
        values["schemaFile"],
        _registry(values),
        values["schemaSubject"],
        values["message"],
        values["payload"],
        values["delimiter"] or ",",
    )


def _require_kind(values: Mapping[str, Any], name: str, kinds: tuple[str, ...]) -> None:
    if values[name] is not None and values["format"] not in kinds:
        raise OptionError(f"option {name} is for format={kinds[0]}, not for {values['format']}")


def _registry(values: Mapping[str, Any]) -> RegistryAccess | None:
    if values["schemaRegistry"] is None:
        return None
    user, password = values["schemaRegistryUser"], values["schemaRegistryPassword"]
    if (user is None) != (password is None):
        raise OptionError("options schemaRegistryUser and schemaRegistryPassword go together")
    return RegistryAccess(values["schemaRegistry"], user, password)
