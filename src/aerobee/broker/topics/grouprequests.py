"""Requests about consumer groups: create, change, delete, list, forbid. RocketMQ: AdminBrokerProcessor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from aerobee.broker.answers import encoded, refused, when_saved
from aerobee.broker.refusal import Refusal
from aerobee.broker.stats import BrokerStats
from aerobee.broker.topics.catalog import Catalog
from aerobee.broker.topics.groups import FORBID_READ_BIT, change, forbidden_problem, is_forbidden, with_forbidden
from aerobee.broker.topics.topicrequests import page
from aerobee.model.dialect import DialectError, dumps, loads_object
from aerobee.model.group import SubscriptionGroupConfig
from aerobee.net.channel import Channel
from aerobee.net.server import Handler
from aerobee.net.turns import Sliced, Slices
from aerobee.protocol.bodies.groups import GroupForbidden, SubscriptionGroupList, SubscriptionGroupWrapper
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.group import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetSubscriptionGroupConfigRequestHeader,
)
from aerobee.protocol.headers.topic import UpdateGroupForbiddenRequestHeader
from aerobee.runtime.seams import Clock
from aerobee.store.metadata.offsets import ConsumerOffsetTable
from aerobee.telemetry.stdlog import get_log

FORBIDDEN_GROUPS_MAX = 2000
_log = get_log("broker.admin")


class PerGroup(Protocol):
    """A table that forgets a group with its deletion."""

    def remove_group(self, group: str, /) -> object: ...


class GroupAdmin:
    """Requests about consumer groups."""

    def __init__(
        self,
        catalog: Catalog,
        stats: BrokerStats,
        offsets: PerGroup,
        locks: PerGroup,
        offset_table: ConsumerOffsetTable,
        clock: Clock,
    ) -> None:
        self._catalog = catalog
        self._stats = stats
        self._offsets = offsets
        self._locks = locks
        self._offset_table = offset_table
        self._clock = clock

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.create,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.create_list,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbid,
        }

    def create(self, channel: Channel, command: Command) -> Command | Sliced:
        try:
            wanted = SubscriptionGroupConfig.from_json(loads_object(command.body))
        except DialectError as error:
            return response(command, ResponseCode.INVALID_PARAMETER, remark=str(error))
        return Sliced(self._put(channel, command, [wanted]), whole=True)

    def create_list(self, channel: Channel, command: Command) -> Sliced:
        def slices() -> Slices:
            try:
                body = yield from SubscriptionGroupList.decode_slices(command.body)
            except DialectError as error:
                return response(command, ResponseCode.INVALID_PARAMETER, remark=str(error))
            return (yield from self._put(channel, command, body.group_config_list))

        return Sliced(slices(), whole=True)

    def _put(self, channel: Channel, command: Command, wanted: Sequence[SubscriptionGroupConfig]) -> Slices:
        made: list[SubscriptionGroupConfig] = []
        queues_max = self._catalog.topic_rules.queue_nums_max
        for one in wanted:
            changed = change(one, self._catalog.group_table.get(one.group_name), queues_max)
            if isinstance(changed, Refusal):
                return refused(command, changed)
            made.append(changed)
            yield
        for config in made:
            if self._catalog.put_group(config):
                _log.info("a group was made or changed", group=config.group_name, peer=channel.remote_address)
            yield
        when_saved(self._catalog, channel, command)
        return None

    def delete(self, channel: Channel, command: Command) -> Command | None:
        """Delete a group. One that does not exist counts as deleted, as in Apache."""
        header = decode_header(DeleteSubscriptionGroupRequestHeader, command)
        group = header.group_name
        if self._catalog.delete_group(group):
            _log.info("a group was deleted", group=group, offsets=header.clean_offset, peer=channel.remote_address)
        if header.clean_offset:
            self._offsets.remove_group(group)
        self._locks.remove_group(group)
        self._stats.forget_group(group)
        when_saved(self._catalog, channel, command, also=self._offset_table)
        return None

    def get(self, channel: Channel, command: Command) -> Command:
        """Show a group. One that is made on first use is made by being asked for. RocketMQ: getSubscriptionGroup."""
        header = decode_header(GetSubscriptionGroupConfigRequestHeader, command)
        config = self._catalog.group(header.group)
        if config is None:
            remark = "No group in this broker"
            return response(command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark=remark)
        return response(command, body=dumps(config.to_json()))

    def get_all(self, channel: Channel, command: Command) -> Sliced:
        header = decode_header(GetAllSubscriptionGroupRequestHeader, command)
        table = self._catalog.group_table
        groups = dict(table.groups)
        forbidden = {group: dict(topics) for group, topics in table.forbidden.items()}
        if not (header.group_seq is None and header.data_version is None and header.max_group_num is None):
            names = page(groups, header.group_seq, header.max_group_num, header.data_version, table.version)
            groups = {name: groups[name] for name in names}
            forbidden = {name: forbidden[name] for name in names if name in forbidden}
        total = len(table.groups)
        body = SubscriptionGroupWrapper(groups, forbidden, table.version)
        return encoded(command, body, GetAllSubscriptionGroupResponseHeader(total_group_num=total))

    def forbid(self, channel: Channel, command: Command) -> Command | None:
        header = decode_header(UpdateGroupForbiddenRequestHeader, command)
        group, topic = header.group, header.topic
        table = self._catalog.group_table
        if header.readable is not None:
            before = table.forbidden.get(group, {})
            if not before and len(table.forbidden) >= FORBIDDEN_GROUPS_MAX:
                remark = f"{FORBIDDEN_GROUPS_MAX} groups have forbidden topics already"
                return response(command, ResponseCode.SYSTEM_ERROR, remark=remark)
            topics = with_forbidden(before, topic, FORBID_READ_BIT, forbid=not header.readable)
            problem = forbidden_problem(group, topic, len(topics))
            if problem is not None:
                return response(command, ResponseCode.INVALID_PARAMETER, remark=problem)
            if table.put_forbidden(group, topics, self._clock.now_ms()):
                self._catalog.touch()
        readable = not is_forbidden(table.forbidden, group, topic)
        body = GroupForbidden(topic, group, readable).encode()
        when_saved(self._catalog, channel, command, response(command, body=body, remark=""))
        return None
