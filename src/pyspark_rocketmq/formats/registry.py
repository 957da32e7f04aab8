"""A client of schema registries: Confluent's HTTP API, and Apicurio's own one of versions 2 and 3.

A body begins with a zero byte and the id of its schema: 4 bytes for Confluent and Apicurio 3, 8 bytes for Apicurio 2.
"""

from __future__ import annotations

import base64
import http.client
import json
import logging
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any, Final

from aerobee.errors import AerobeeError
from aerobee.model.numbers import plain_int
from aerobee.runtime.blocking import pause
from pyspark_rocketmq.formats.decoders import MalformedBodyError
from pyspark_rocketmq.formats.options import AVRO, JSON, PROTOBUF, RegistryAccess
from pyspark_rocketmq.formats.types import SchemaError

_TIMEOUT_S: Final = 10.0
_PAUSES_S: Final = (0.2, 1.0)
_ANSWER_MAX: Final = 4 << 20
_KINDS: Final = {AVRO: "AVRO", JSON: "JSON", PROTOBUF: "PROTOBUF"}
# A sender may write any number as an id. After so many that the registry does not have, a task pauses before it asks
# again, so that the registry has time for others. It asks: a body that can be read must not count as malformed.
_UNKNOWN_MANY: Final = 100
_UNKNOWN_PAUSE_S: Final = 0.01
# More of them are not remembered.
_UNKNOWN_MAX: Final = 100_000

_log = logging.getLogger("pyspark_rocketmq")


class RegistryError(AerobeeError):
    """A schema registry does not answer, or refuses a request."""


class _MissingError(SchemaError):
    """The registry does not have what it was asked for."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema with its id in the registry."""

    number: int
    text: str


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuse redirects, which would send the password to another host."""

    def redirect_request(self, *args: Any, **named: Any) -> None:
        return None


class Registry:
    """One registry. It is created in the driver and in each task, and keeps the schemas that it has read."""

    def __init__(self, access: RegistryAccess) -> None:
        self._access = access
        self._is_apicurio = "/apis/registry/" in access.url
        self._is_second = access.url.endswith("/apis/registry/v2")
        self.id_bytes = 8 if self._is_second else 4
        self._texts: dict[int, str] = {}
        # By id: why no body can be read with it.
        self._unusable: dict[int, str] = {}

    def latest(self, subject: str, kind: str) -> RegisteredSchema:
        """Return the newest schema of a subject. Raises SchemaError if there is none, or one of another format."""
        name = urllib.parse.quote(subject, safe="")
        if not self._is_apicurio:
            found = self._json(f"/subjects/{name}/versions/latest", f"subject {subject}")
            _require_kind(found.get("schemaType", "AVRO"), kind, subject)
            _refuse_references(found, subject)
            return RegisteredSchema(plain_int(found["id"]), str(found["schema"]))
        below = f"/groups/default/artifacts/{name}"
        if self._is_second:
            found, place = self._json(f"{below}/meta", f"artifact {subject}"), below
            _require_kind(found.get("type", ""), kind, subject)
            number = plain_int(found["globalId"])
        else:
            place = f"{below}/versions/branch=latest"
            found, place = self._json(place, f"artifact {subject}"), f"{place}/content"
            _require_kind(found.get("artifactType", ""), kind, subject)
            number = plain_int(found["contentId"])
        return RegisteredSchema(number, self._get(place, f"artifact {subject}"))

    def by_id(self, number: int) -> str:
        """Return the schema with this id. Raises MalformedBodyError if the registry does not know it, or if it refers
        to other schemas."""
        if number in self._texts:
            return self._texts[number]
        reason = self._unusable.get(number)
        if reason is None:
            if len(self._unusable) >= _UNKNOWN_MANY:
                pause(_UNKNOWN_PAUSE_S)
            try:
                self._texts[number] = self._read_id(number)
            except SchemaError as error:
                reason = self._note(number, error)
            else:
                return self._texts[number]
        raise MalformedBodyError(reason)

    def _note(self, number: int, error: SchemaError) -> str:
        """Remember that no body can be read with this id. Return why."""
        is_missing = isinstance(error, _MissingError)
        reason = f"the registry has no schema with the id {number}" if is_missing else error.message
        if len(self._unusable) < _UNKNOWN_MAX:
            self._unusable[number] = reason
            if len(self._unusable) == _UNKNOWN_MANY:
                _log.warning(
                    "bodies name %d schemas that schema registry %s does not have; it is asked for others more slowly",
                    _UNKNOWN_MANY, self._access.url,
                )  # fmt: skip
        return reason

    def _read_id(self, number: int) -> str:
        what = f"schema {number}"
        if self._is_apicurio:
            return self._get(f"/ids/{'globalIds' if self._is_second else 'contentIds'}/{number}", what)
        found = self._json(f"/schemas/ids/{number}", what)
        _refuse_references(found, what)
        return str(found["schema"])

    # -- HTTP

    def _json(self, path: str, what: str) -> dict[str, Any]:
        text = self._get(path, what)
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise RegistryError(f"schema registry {self._access.url}: the answer for {what} is no JSON object")
        return found

    def _get(self, path: str, what: str) -> str:
        for wait_s in (*_PAUSES_S, None):
            try:
                return self._once(path, what)
            except (OSError, http.client.HTTPException) as error:
                if wait_s is None:
                    raise RegistryError(
                        f"schema registry {self._access.url} does not answer: {error}", retriable=True
                    ) from None
                pause(wait_s)
        raise AssertionError("the last try raises")

    def _once(self, path: str, what: str) -> str:
        request = urllib.request.Request(self._access.url + path, headers={"Accept": "*/*"})
        if self._access.user is not None:
            pair = f"{self._access.user}:{self._access.password}".encode()
            request.add_header("Authorization", f"Basic {base64.b64encode(pair).decode()}")
        try:
            with urllib.request.build_opener(_NoRedirects).open(request, timeout=_TIMEOUT_S) as answer:
                data: bytes = answer.read(_ANSWER_MAX + 1)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                raise _MissingError(f"schema registry {self._access.url} has no {what}") from None
            if error.code >= 500:
                raise http.client.HTTPException(f"status {error.code}") from None
            raise RegistryError(f"schema registry {self._access.url} refuses {what}: status {error.code}") from None
        if len(data) > _ANSWER_MAX:
            raise RegistryError(f"schema registry {self._access.url}: the answer for {what} is too large")
        return data.decode("utf-8", "replace")


def _require_kind(found: object, kind: str, subject: str) -> None:
    if found != _KINDS.get(kind):
        raise SchemaError(f"subject {subject} of the registry is {found}, not what format={kind} needs")


def _refuse_references(found: dict[str, Any], what: str) -> None:
    if found.get("references"):
        raise SchemaError(f"{what} of the registry refers to other schemas, which is not supported")
