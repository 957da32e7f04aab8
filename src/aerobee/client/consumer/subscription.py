"""The subscription of a group to a topic. RocketMQ: FilterAPI, MQClientInstance.checkClientInBroker."""

from __future__ import annotations

from dataclasses import replace

from aerobee.client.core import ClientCore
from aerobee.errors import InvalidArgumentError, TransportError
from aerobee.errors.codes import TopicNotExistError
from aerobee.hot.log.javahash import java_hash
from aerobee.protocol.bodies.heartbeat import SQL92, TAG, CheckClientRequestBody, SubscriptionData
from aerobee.protocol.codes import RequestCode
from aerobee.telemetry.stdlog import get_log

ALL = "*"

_log = get_log("client.filter")


def subscription(topic: str, tags: str = ALL, sql92: str | None = None, version: int = 0) -> SubscriptionData:
    """Return a subscription by `tags` (`*`, or tags with `||` between them) or by `sql92`, which brokers evaluate."""
    tags = tags.strip() or ALL
    if sql92 is not None:
        if tags != ALL:
            raise InvalidArgumentError("tags and sql92 cannot go together: TAGS is a property that sql92 can ask for")
        if not sql92.strip():
            raise InvalidArgumentError("sql92 is empty")
        return SubscriptionData(topic, sql92, sub_version=version, expression_type=SQL92)
    if tags == ALL:
        return SubscriptionData(topic, ALL, sub_version=version)
    wanted = tuple(dict.fromkeys(tag for tag in (part.strip() for part in tags.split("||")) if tag))
    if not wanted:
        raise InvalidArgumentError(f"tags={tags!r} names no tag")
    codes = tuple(dict.fromkeys(java_hash(tag) for tag in wanted))
    return SubscriptionData(topic, tags, wanted, codes, version, TAG)


def newer(data: SubscriptionData, version: int) -> SubscriptionData:
    """Return the subscription with a later version: brokers keep the latest one."""
    return replace(data, sub_version=max(version, data.sub_version + 1))


async def require_filter(core: ClientCore, group: str, data: SubscriptionData) -> None:
    """Raise where a broker refuses the filter. A broker that cannot be asked now refuses the pulls later."""
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
        _log.warning("the filter could not be checked", topic=data.topic, reason=str(error))
