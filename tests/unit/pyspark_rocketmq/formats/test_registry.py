"""Schema registries over real HTTP on loopback: Confluent's API and Apicurio's two, ids before bodies, and refusals."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import fastavro
import pytest

from aerobee.testing.secrets import secret_for
from pyspark_rocketmq.formats import avro
from pyspark_rocketmq.formats.decoders import MalformedBodyError
from pyspark_rocketmq.formats.definition import define
from pyspark_rocketmq.formats.encoders import encoder_of
from pyspark_rocketmq.formats.options import BODY_OPTIONS, body_settings
from pyspark_rocketmq.formats.registry import RegistryError
from pyspark_rocketmq.formats.types import SchemaError
from pyspark_rocketmq.options import read_options

OLD = '{"type":"record","name":"R","fields":[{"name":"id","type":"int"}]}'
NEW = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"n","type":"string","default":"-"}]}'
THIRD = "/apis/registry/v3/groups/default/artifacts/orders-value"
PASSWORD = secret_for("reader")
WANTED_LOGIN = f"Basic {base64.b64encode(f'reader:{PASSWORD}'.encode()).decode()}"


class Answers(BaseHTTPRequestHandler):
    """Answers from a table of paths."""

    table: ClassVar[dict[str, Any]] = {
        "/subjects/orders-value/versions/latest": {"id": 2, "version": 2, "schema": NEW},
        "/subjects/json-value/versions/latest": {
            "id": 3, "schemaType": "JSON", "schema": '{"properties":{"id":{"type":"integer"}}}',
        },
        "/subjects/refs-value/versions/latest": {"id": 4, "schema": NEW, "references": [{"name": "x"}]},
        "/schemas/ids/1": {"schema": OLD}, "/schemas/ids/2": {"schema": NEW},
        "/schemas/ids/5": {"schema": '{"type":"map","values":"int"}'},
        "/schemas/ids/6": {"schemaType": "JSON", "schema": '{"properties":{}}'},
        "/schemas/ids/4": {"schema": NEW, "references": [{"name": "x"}]},
        "/apis/registry/v2/groups/default/artifacts/orders-value/meta": {"globalId": 2, "type": "AVRO"},
        "/apis/registry/v2/groups/default/artifacts/orders-value": NEW,
        "/apis/registry/v2/ids/globalIds/1": OLD, "/apis/registry/v2/ids/globalIds/2": NEW,
        f"{THIRD}/versions/branch=latest": {"contentId": 2, "artifactType": "AVRO"},
        f"{THIRD}/versions/branch=latest/content": NEW,
        "/apis/registry/v3/ids/contentIds/1": OLD, "/apis/registry/v3/ids/contentIds/2": NEW,
    }  # fmt: skip
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        path = self.path
        if path.startswith("/secret"):
            if self.headers.get("Authorization") != WANTED_LOGIN:
                return self._answer(401, b"no")
            path = path.removeprefix("/secret")
        if path.startswith("/moved"):
            self.send_response(302)
            self.send_header("Location", "/subjects/orders-value/versions/latest")
            self.end_headers()
            return None
        found = self.table.get(path)
        if found is None:
            return self._answer(404, b"{}")
        return self._answer(200, (found if isinstance(found, str) else json.dumps(found)).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def registry() -> Iterator[str]:
    Answers.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def defined(url: str, kind: str = "avro", subject: str = "orders-value", **more: str) -> Any:
    settings = body_settings(read_options({"format": kind, "schemaRegistry": url, **more}, BODY_OPTIONS))
    assert settings is not None
    return define(settings, subject, None, None)


@pytest.mark.parametrize(("below", "id_bytes"), [("", 4), ("/", 4), ("/apis/registry/v2", 8), ("/apis/registry/v3", 4)])
def test_bodies_name_the_schema_they_were_written_with(registry: str, below: str, id_bytes: int) -> None:
    definition = defined(registry + below)
    decoder = definition.decoder(definition.whole())
    old = io.BytesIO()
    fastavro.schemaless_writer(old, avro.parsed(OLD), {"id": 7})
    assert decoder.decode(b"\0" + (1).to_bytes(id_bytes, "big") + old.getvalue()) == {"id": 7, "n": "-"}
    row = {"id": 1 << 40, "n": "x"}
    body = encoder_of(definition)(row)
    assert body[: 1 + id_bytes] == b"\0" + (2).to_bytes(id_bytes, "big")
    assert decoder.decode(body) == row
    count = len(Answers.asked)
    assert decoder.decode(body) == row and len(Answers.asked) == count, "a schema is read once"
    for bad in (b"", b"\1" + body[1:], body[:3], b"\0" + (9).to_bytes(id_bytes, "big") + b"x"):
        with pytest.raises(MalformedBodyError):
            decoder.decode(bad)


def test_many_unknown_ids_make_no_other_body_unreadable(registry: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each is asked for once. A schema that the registry has is found after any number of them."""
    definition = defined(registry)
    decoder = definition.decoder(definition.whole())
    before = len(Answers.asked)
    for _ in range(2):
        for number in range(1000, 1120):
            with pytest.raises(MalformedBodyError, match="no schema with the id"):
                decoder.decode(b"\0" + number.to_bytes(4, "big") + b"x")
    assert len(Answers.asked) - before == 120
    assert [one.message for one in caplog.records if "bodies name 100 schemas" in one.message]
    old = io.BytesIO()
    fastavro.schemaless_writer(old, avro.parsed(OLD), {"id": 7})
    assert decoder.decode(b"\0\0\0\0\1" + old.getvalue()) == {"id": 7, "n": "-"}
    # The schema that the driver has found is not asked for in each task.
    row = {"id": 7, "n": "x"}
    assert decoder.decode(encoder_of(definition)(row)) == row
    assert len(Answers.asked) - before == 121


def test_a_body_whose_schema_refers_to_others_says_so(registry: str) -> None:
    definition = defined(registry)
    decoder = definition.decoder(definition.whole())
    before = len(Answers.asked)
    for _ in range(2):
        with pytest.raises(MalformedBodyError, match="schema 4 of the registry refers to other schemas"):
            decoder.decode(b"\0\0\0\0\4x")
    assert len(Answers.asked) - before == 1


def test_a_body_that_names_a_schema_of_another_kind_stops_no_query(registry: str) -> None:
    """Any schema of the registry can be named, also one of another subject."""
    definition = defined(registry)
    decoder = definition.decoder(definition.whole())
    for number, reason in ((5, "is none for columns: .* not a record"), (6, "is none for columns: .* cannot be read")):
        for _ in range(2):
            with pytest.raises(MalformedBodyError, match=f"schema {number} of the registry {reason}"):
                decoder.decode(b"\0" + number.to_bytes(4, "big") + b"x")
    assert decoder.decode(encoder_of(definition)({"id": 1, "n": "x"})) == {"id": 1, "n": "x"}


def test_json_with_an_id(registry: str) -> None:
    definition = defined(registry, "json", "json-value")
    assert definition.decoder(definition.whole()).decode(b'\0\0\0\0\3{"id":5}') == {"id": 5}


def test_refusals_are_told_without_the_password(registry: str) -> None:
    login = {"schemaRegistryUser": "reader", "schemaRegistryPassword": PASSWORD}
    assert PASSWORD not in repr(defined(f"{registry}/secret", **login))
    for url, more, error, reason in (
        (registry, {"subject": "nope-value"}, SchemaError, "has no subject nope-value"),
        (registry, {"subject": "json-value"}, SchemaError, "is JSON, not what format=avro needs"),
        (registry, {"subject": "refs-value"}, SchemaError, "refers to other schemas"),
        (f"{registry}/secret", {**login, "schemaRegistryPassword": PASSWORD + "2"}, RegistryError, "status 401"),
        (f"{registry}/moved", login, RegistryError, "status 302"),
        ("http://127.0.0.1:1", login, RegistryError, "does not answer"),
    ):
        with pytest.raises(error, match=reason) as told:
            defined(url, **more)
        assert PASSWORD not in f"{told.value} {told.value.__dict__}"
