"""Asking a broker whether it can evaluate a filter, before a consumer relies on it.

RocketMQ: MQClientInstance.checkClientInBroker.
"""

from __future__ import annotations

from aerobee.client.core.clientcore import ClientCore
from aerobee.errors import TransportError
from aerobee.errors.codes import TopicNotExistError
from aerobee.protocol.bodies.heartbeat import TAG, CheckClientRequestBody, SubscriptionData
from aerobee.protocol.codes import RequestCode
from aerobee.telemetry.stdlog import get_log

_log = get_log("client.filter")


async def require_filter(core: ClientCore, group: str, data: SubscriptionData) -> None:
    """Raises the broker's refusal. A broker that cannot be asked now refuses later, when it is pulled from."""
    if data.expression_type == TAG:
        return
    try:
        route = await core.route(data.topic)
        addresses = [core.routes.address(broker.broker_name) for broker in route.data.broker_datas]
        address = next((address for address in addresses if address is not None), None)
        if address is not None:
            body = CheckClientRequestBody(core.client_id, group, data).encode()
            await core.ask(address, RequestCode.CHECK_CLIENT_CONFIG, None, body)
    except (TransportError, TopicNotExistError) as error:
        _log.warning("filter not checked", topic=data.topic, reason=str(error))
