"""Who may make a call: the signature of a client, and the names that its request is about.

    authorization: MQv2-HMAC-SHA1 Credential=<user>[/..], SignedHeaders=x-mq-date-time, Signature=<hex>

The signature covers the text of `x-mq-date-time` alone, as all clients of RocketMQ write it, so it is good for as long
as that time is taken: TLS must hide it. Clients write their local time with a Z behind it. So a time is taken that
differs from ours by a whole number of quarter hours up to 14 hours, give or take five minutes. A telemetry stream has
the headers of its beginning for as long as it lives: their time is compared with that beginning.
RocketMQ: DefaultAuthenticationContextBuilder, DefaultAuthorizationContextBuilder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from aerobee.access.door import Access
from aerobee.access.grpctable import grpc_needs
from aerobee.access.refusal import AccessRefusedError
from aerobee.access.rows import NameWorld
from aerobee.protocol.v2 import calls
from aerobee.protocol.v2.enums import Code
from aerobee.protocol.v2.values import PbResource
from aerobee.proxy.status import RefusedCallError

_SCHEME: Final = "MQv2-HMAC-SHA1"
_HEADER_MAX: Final = 4096
_HEX: Final = re.compile(r"[0-9a-fA-F]{40}")
_TIME: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_QUARTER_S: Final = 900.0
_ZONE_MAX_S: Final = 14 * 3600.0
_SKEW_S: Final = 300.0


class GrpcDoor:
    """Asks for each call who makes it and whether he may."""

    def __init__(
        self,
        access: Access,
        world: Callable[[], NameWorld],
        now_ms: Callable[[], int],
        *,
        is_ready: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_ready` tells whether users are known: before that the answer is not that somebody is none."""
        self._access = access
        self._is_ready = is_ready
        self._world = world
        self._now_ms = now_ms

    def check(
        self, name: str, request: object, metadata: Mapping[bytes, bytes], source: str, age_s: float = 0.0
    ) -> str:
        """Return the user who signed the call, `age_s` ago. Raise RefusedCallError unless he has the rights for it."""
        if not self._is_ready():
            raise RefusedCallError(
                Code.INTERNAL_SERVER_ERROR, "the users are not known yet: no broker has told them to this proxy"
            )
        try:
            user_name, signature = credential_of(metadata.get(b"authorization", b""))
            text = metadata.get(b"x-mq-date-time", b"")
            if not self._is_timely(text, age_s):
                signature = b""
            user = self._access.authenticate_text(user_name, text, signature, source, name)
            topics, published, group = names_of(request)
            needs = grpc_needs(name, self._world(), topics=topics, published=published, consumer_group=group)
            if needs is None:
                raise AccessRefusedError(f"there is no row of rights for {name}")
            self._access.authorize(user, needs, source, name)
            return user.name
        except AccessRefusedError as error:
            raise RefusedCallError(Code.UNAUTHORIZED, error.message) from None

    def _is_timely(self, text: bytes, age_s: float) -> bool:
        told = text.decode("latin-1")
        if not _TIME.fullmatch(told):
            return False
        try:
            at = datetime.strptime(told, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            return False
        away_s = abs(at.timestamp() - (self._now_ms() / 1000 - age_s))
        beside_s = away_s % _QUARTER_S
        return away_s <= _ZONE_MAX_S + _SKEW_S and min(beside_s, _QUARTER_S - beside_s) <= _SKEW_S


def credential_of(header: bytes) -> tuple[str, bytes]:
    """Return user and signature; a header that is none gives nobody."""
    text = header[:_HEADER_MAX].decode("latin-1")
    scheme, _, rest = text.partition(" ")
    fields = {}
    for part in rest.split(","):
        name, _, value = part.strip().partition("=")
        fields[name] = value
    signature = fields.get("Signature", "")
    if scheme != _SCHEME or not _HEX.fullmatch(signature):
        return fields.get("Credential", "").partition("/")[0], b""
    return fields.get("Credential", "").partition("/")[0], bytes.fromhex(signature)


def names_of(request: object) -> tuple[list[str], list[str], str | None]:
    """Return the topics of a request, those that it publishes to by Telemetry, and its consumer group."""
    if isinstance(request, calls.PbSendMessageRequest):
        return [_name(one.topic) for one in request.messages], [], None
    if isinstance(request, calls.PbTelemetryCommand):
        settings = request.settings
        if settings is None:
            return [], [], None
        if settings.publishing is not None:
            return [], [_name(one) for one in settings.publishing.topics], None
        if settings.subscription is not None:
            topics = [_name(one.topic) for one in settings.subscription.subscriptions]
            return topics, [], _name(settings.subscription.group)
        return [], [], None
    queue = getattr(request, "message_queue", None)
    topic = queue.topic if queue is not None else getattr(request, "topic", None)
    group = getattr(request, "group", None)
    return ([_name(topic)] if topic is not None else []), [], None if group is None else _name(group)


def _name(resource: PbResource | None) -> str:
    return "" if resource is None else resource.name
