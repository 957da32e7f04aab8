"""Handlers of our own requests about broker groups that are away (docs/formats/private.md)."""

from __future__ import annotations

from aerobee.model.names import topic_problem
from aerobee.model.numbers import INT32_MAX
from aerobee.namesrv.routes import NAME_LENGTH_MAX, TOPICS_PER_CHANNEL_MAX
from aerobee.namesrv.state import Handler, NamesrvState, Peer
from aerobee.net.turns import Sliced, Slices
from aerobee.protocol.bodies.declarations import GroupDeclaration, KnownGroups
from aerobee.protocol.codes import PrivateRequestCode, ResponseCode
from aerobee.protocol.command import Command, response
from aerobee.protocol.headers.base import decode_header
from aerobee.protocol.headers.declarations import ForgetGroupRequestHeader, KnownGroupsRequestHeader
from aerobee.telemetry.stdlog import get_log

_log = get_log("namesrv")


class DeclarationHandlers:
    """Answers brokers that compare what they know of other groups, and the command that forgets a group."""

    def __init__(self, state: NamesrvState) -> None:
        self._routes = state.routes

    def handlers(self) -> dict[int, Handler]:
        return {
            PrivateRequestCode.KNOWN_GROUPS: self.known_groups,
            PrivateRequestCode.TELL_GROUP: self.tell_group,
            PrivateRequestCode.FORGET_GROUP: self.forget_group,
        }

    def known_groups(self, peer: Peer, command: Command) -> Sliced:
        def slices() -> Slices:
            header = decode_header(KnownGroupsRequestHeader, command)
            known = yield from KnownGroups.decode_slices(command.body)
            news = yield from self._routes.compare(known.groups, header.broker_name)
            return response(command, body=(yield from news.encode_slices()))

        return Sliced(slices())

    def tell_group(self, peer: Peer, command: Command) -> Sliced:
        def slices() -> Slices:
            told = yield from GroupDeclaration.decode_slices(command.body)
            problem = _problem(told)
            if problem:
                return response(command, ResponseCode.INVALID_PARAMETER, remark=problem)
            if self._routes.merge(told):
                _log.info(
                    "a broker told of a group that is away", group=told.broker_name, topics=len(told.topics),
                    forgotten=told.forgotten,
                )  # fmt: skip
            return response(command)

        return Sliced(slices())

    def forget_group(self, peer: Peer, command: Command) -> Command:
        name = decode_header(ForgetGroupRequestHeader, command).broker_name
        if self._routes.members(name):
            remark = f"broker group {name} is running: stop its brokers first"
            return response(command, ResponseCode.NO_PERMISSION, remark=remark)
        if not self._routes.declared.forget(name):
            return response(command, ResponseCode.QUERY_NOT_FOUND, remark=f"no broker group {name} is known")
        _log.info("a broker group was forgotten", group=name, peer=peer.remote_address)
        return response(command)


def _problem(told: GroupDeclaration) -> str:
    """Return what is wrong with a declaration, or an empty text."""
    if not told.broker_name or max(len(told.broker_name), len(told.cluster)) > NAME_LENGTH_MAX:
        return "the declaration names no broker group, or its name is too long"
    if len(told.topics) > TOPICS_PER_CHANNEL_MAX or (told.forgotten and told.topics):
        return f"the declaration of {told.broker_name} has {len(told.topics)} topics"
    for topic, queues in told.topics.items():
        if topic_problem(topic) or not 0 < queues <= INT32_MAX:
            return f"the declaration of {told.broker_name} has a topic with a wrong name or number of queues"
    return ""
