"""The handler of GET_ROUTEINFO_BY_TOPIC, which every client sends all the time.

RocketMQ: ClientRequestProcessor, ZoneRouteRPCHook.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from aerobee.model.dialect import dumps
from aerobee.model.route import TopicRouteData
from aerobee.namesrv.kvconfig import ORDER_TOPIC_CONFIG
from aerobee.namesrv.pickup import only_zone
from aerobee.namesrv.state import Handler, NamesrvState, Peer
from aerobee.protocol.codes import AWAY_FIELD, RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.route import GetRouteInfoRequestHeader

# Clients of this version and later read quoted integer keys. RocketMQ: MQVersion.V4_9_4.ordinal()
_VERSION_STANDARD_JSON = 401
_ZONE_MODE = "__ZONE_MODE"
_ZONE_NAME = "__ZONE_NAME"
_CACHE_MAX = 20_000

# The words are Apache's. RocketMQ: FAQUrl.
_SEE_FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class RouteHandlers:
    """Answers route requests from a cache of encoded routes, which any change of a route empties."""

    def __init__(self, state: NamesrvState) -> None:
        self._state = state
        self._cache: dict[tuple[str, bool], bytes] = {}
        self._cache_of: tuple[object, ...] = ()

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.GET_ROUTEINFO_BY_TOPIC: self.get_route_info}

    def get_route_info(self, peer: Peer, command: Command) -> Command:
        header = decode_header(GetRouteInfoRequestHeader, command)
        config = self._state.config
        waited_ms = self._state.now_ms() - self._state.started_ms
        if config.need_wait_for_service and waited_ms < config.wait_for_service_s * 1000:
            return response(command, ResponseCode.SYSTEM_ERROR, remark="name server not ready")
        standard = command.version >= _VERSION_STANDARD_JSON or bool(header.accept_standard_json_only)
        zone = _zone(command)
        if zone:
            route = self._route(header.topic)
            body = None if route is None else _encode(only_zone(route, zone), standard)
        else:
            body = self._encoded(header.topic, standard)
        away = self._away(header.topic) if AWAY_FIELD in command.ext else None
        if body is None:
            remark = f"No topic route info in name server for the topic: {header.topic}{_SEE_FAQ}"
            return response(command, ResponseCode.TOPIC_NOT_EXIST, remark=remark, ext=away)
        return response(command, body=body, ext=away)

    def _away(self, topic: str) -> dict[str, str] | None:
        """Return the field that names the broker groups of a topic that are away, if there are any."""
        away = self._state.routes.away(topic)
        return {AWAY_FIELD: dumps(away).decode()} if away else None

    def _encoded(self, topic: str, standard: bool) -> bytes | None:
        state = self._state
        now = (state.routes.revision, state.kv.revision, state.config)
        if now != self._cache_of or len(self._cache) >= _CACHE_MAX:
            self._cache.clear()
            self._cache_of = now
        body = self._cache.get((topic, standard))
        if body is None:
            route = self._route(topic)
            if route is None:
                return None
            body = self._cache[topic, standard] = _encode(route, standard)
        return body

    def _route(self, topic: str) -> TopicRouteData | None:
        route = self._state.routes.route(topic)
        if route is not None and self._state.config.order_message_enable:
            return replace(route, order_topic_conf=self._state.kv.get(ORDER_TOPIC_CONFIG, topic))
        return route


def _zone(command: Command) -> str:
    """Return the zone that the client wants to stay in, or an empty text."""
    if command.ext.get(_ZONE_MODE, "").lower() != "true":
        return ""
    return command.ext.get(_ZONE_NAME, "").strip()


def _encode(route: TopicRouteData, standard: bool) -> bytes:
    """Encode a route. Integer keys are bare in Apache's dialect, and quoted in standard JSON (4.9.4 and later)."""
    document = route.to_json()
    return dumps(_with_text_keys(document) if standard else document)


def _with_text_keys(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _with_text_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_text_keys(item) for item in value]
    return value
