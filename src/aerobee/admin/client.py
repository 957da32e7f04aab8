"""`aerobee.Admin`: what the commands do, as typed methods.

    async with aerobee.Admin("localhost:9876") as admin:
        await admin.topics.create("orders", queues=8)
        print((await admin.groups.lag("billing")).lag)

Each attribute (`topics`, `groups`, ...) is a room with the operations on one kind of thing. Their results are frozen
values; `to_json()` gives what the command prints with `--json`.
"""

from __future__ import annotations

import builtins
import contextlib
import ssl
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from aerobee.admin import cluster as clusters
from aerobee.admin import deadletters, groups, messages, offsets, portable, replay, replicas, topics, upkeep
from aerobee.admin.accessrooms import RightRoom as RightRoom
from aerobee.admin.accessrooms import UserRoom as UserRoom
from aerobee.admin.arguments import Moment, attribute_words, span_of, target_of
from aerobee.admin.cluster import BrokerStatus
from aerobee.admin.connection import AdminConnection, KnownBroker
from aerobee.admin.deadletters import DeadLetterEntry, ResendPlan
from aerobee.admin.groups import GroupChange, GroupDetails, GroupLag, GroupListing, GroupSettings, ProducerList
from aerobee.admin.members import MemberState, members_of
from aerobee.admin.messages import FoundMessages, GroupTrack
from aerobee.admin.offsets import MemberOffset, ResetPlan
from aerobee.admin.quotaroom import QuotaRoom as QuotaRoom
from aerobee.admin.replay import CopyReport
from aerobee.admin.replicas import GroupReplicas
from aerobee.admin.topics import RouteEntry, TopicChange, TopicDetails, TopicListing, TopicSettings, TopicUpdatePlan
from aerobee.admin.trace import MessageTrace, trace_of
from aerobee.client.core import client_config
from aerobee.errors import InvalidArgumentError
from aerobee.model.message import Message
from aerobee.runtime.process import environment


class Room:
    """The operations on one kind of thing, over the connection of an Admin."""

    def __init__(self, connection: AdminConnection) -> None:
        self._admin = connection


class TopicRoom(Room):
    """Topics over all brokers of a cluster. `cluster` and `broker` narrow an operation to some of them."""

    async def list(self, *, cluster: str | None = None) -> TopicListing:
        """Return all topics, and the brokers that could not be asked."""
        return await topics.list_topics(self._admin, cluster=cluster)

    async def show(self, topic: str) -> TopicDetails:
        """Return settings, queues, rate and groups of a topic. Raise TopicNotExistError."""
        return await topics.topic_details(self._admin, topic)

    async def route(self, topic: str) -> tuple[RouteEntry, ...]:
        """Return the brokers of a topic, as clients learn them."""
        return await topics.topic_route(self._admin, topic)

    async def create(
        self,
        topic: str,
        *,
        queues: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        attributes: Mapping[str, str | None] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> tuple[TopicSettings, ...]:
        """Create a topic on the chosen brokers, and wait until it is routed. Raise TopicExistError."""
        change = TopicChange(queues, queues, perm, order, attribute_words(attributes))
        return await topics.create_topic(self._admin, topic, change, cluster=cluster, broker=broker)

    async def plan_update(
        self,
        topic: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        attributes: Mapping[str, str | None] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> TopicUpdatePlan:
        """Return what `update` would change, and how many messages nobody could read afterwards."""
        change = TopicChange(read_queues, write_queues, perm, order, attribute_words(attributes))
        return await topics.plan_update(self._admin, topic, change, cluster=cluster, broker=broker)

    async def update(
        self,
        topic: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        order: bool | None = None,
        attributes: Mapping[str, str | None] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> tuple[TopicSettings, ...]:
        """Change a topic. What is not named stays; an attribute that is None is removed."""
        change = TopicChange(read_queues, write_queues, perm, order, attribute_words(attributes))
        return await topics.update_topic(self._admin, topic, change, cluster=cluster, broker=broker)

    async def delete(self, topic: str, *, cluster: str | None = None) -> tuple[str, ...]:
        """Delete a topic with its messages. Return the brokers that had it."""
        return await topics.delete_topic(self._admin, topic, cluster=cluster)


class GroupRoom(Room):
    """Consumer groups: settings, members and progress. And connected producers."""

    async def list(self, *, cluster: str | None = None, with_system: bool = False) -> GroupListing:
        """Return all groups, and the brokers that could not be asked."""
        return await groups.list_groups(self._admin, cluster=cluster, with_system=with_system)

    async def show(self, group: str) -> GroupDetails:
        """Return settings, members, subscriptions and progress of a group. Raise GroupNotExistError."""
        return await groups.group_details(self._admin, group)

    async def lag(self, group: str, *, topic: str | None = None) -> GroupLag:
        """Return how far a group is behind, by queue and in all."""
        return await groups.group_lag(self._admin, group, topic=topic)

    async def create(
        self,
        group: str,
        *,
        consume: bool | None = None,
        broadcast: bool | None = None,
        orderly: bool | None = None,
        retry_queues: int | None = None,
        retry_max: int | None = None,
        attributes: Mapping[str, str | None] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> tuple[GroupSettings, ...]:
        """Create a group on the chosen brokers."""
        change = GroupChange(consume, broadcast, orderly, retry_queues, retry_max, attribute_words(attributes))
        return await groups.create_group(self._admin, group, change, cluster=cluster, broker=broker)

    async def update(
        self,
        group: str,
        *,
        consume: bool | None = None,
        broadcast: bool | None = None,
        orderly: bool | None = None,
        retry_queues: int | None = None,
        retry_max: int | None = None,
        attributes: Mapping[str, str | None] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> tuple[GroupSettings, ...]:
        """Change a group. What is not named stays."""
        change = GroupChange(consume, broadcast, orderly, retry_queues, retry_max, attribute_words(attributes))
        return await groups.update_group(self._admin, group, change, cluster=cluster, broker=broker)

    async def delete(self, group: str, *, cluster: str | None = None, keep_offsets: bool = False) -> tuple[str, ...]:
        """Delete a group. Return the brokers that had it."""
        return await groups.delete_group(self._admin, group, cluster=cluster, keep_offsets=keep_offsets)

    async def members(self, group: str, *, stack: bool = False) -> tuple[MemberState, ...]:
        """Return what each connected member does: its queues, what waits in them, and its stacks if asked for."""
        return await members_of(self._admin, group, stack=stack)

    async def producers(self, *, group: str | None = None, cluster: str | None = None) -> ProducerList:
        """Return the connected producers, all or those of one producer group."""
        return await groups.list_producers(self._admin, group=group, cluster=cluster)


class OffsetRoom(Room):
    """The offsets of consumer groups. A target is `first`, `last`, a time (datetime or milliseconds) or an offset."""

    async def plan_reset(
        self,
        group: str,
        topic: str,
        *,
        to: str | Moment | None = None,
        offset: int | None = None,
        queue: int | None = None,
    ) -> ResetPlan:
        """Return what `reset` would do in each queue."""
        return await offsets.plan_reset(self._admin, group, topic, target_of(to, offset), queue_id=queue)

    async def reset(
        self,
        group: str,
        topic: str,
        *,
        to: str | Moment | None = None,
        offset: int | None = None,
        queue: int | None = None,
    ) -> ResetPlan:
        """Set the offsets of a group in a topic, whether it is connected or not. Return what was done."""
        target = target_of(to, offset)
        plan = await offsets.plan_reset(self._admin, group, topic, target, queue_id=queue)
        await offsets.reset_offsets(self._admin, plan, target)
        return plan

    async def of_members(self, group: str, topic: str) -> tuple[MemberOffset, ...]:
        """Return the offsets that the connected push consumers of a group report."""
        return await offsets.consumer_status(self._admin, group, topic)


class MessageRoom(Room):
    """Messages of the brokers' logs. Reading them changes no offset of any group."""

    async def show(self, message_id: str, *, topic: str | None = None) -> Message:
        """Return the message with this offset id, or in `topic` with this unique id. Raise QueryNotFoundError."""
        return await messages.find_message(self._admin, message_id, topic=topic)

    async def find(
        self,
        topic: str,
        *,
        key: str | None = None,
        message_id: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int = 64,
    ) -> FoundMessages:
        """Return messages of a topic by key, by unique id or by store time, oldest first."""
        if key is not None and message_id is not None:
            raise InvalidArgumentError("key and message_id exclude each other")
        if limit < 1:
            raise InvalidArgumentError(f"limit={limit} finds nothing")
        if message_id is not None:
            return await messages.find_by_unique_id(self._admin, message_id, topic)
        span = span_of(since, until)
        if key is not None:
            return await messages.find_by_key(
                self._admin, topic, key, begin_ms=span.begin_ms, end_ms=span.end_ms, limit=limit
            )
        return await messages.find_by_time(self._admin, topic, begin_ms=span.begin_ms, end_ms=span.end_ms, limit=limit)

    async def track(self, message_id: str, *, topic: str) -> tuple[GroupTrack, ...]:
        """Return what each group of the topic did with a message."""
        found = await messages.find_message(self._admin, message_id, topic=topic)
        return await messages.track_message(self._admin, found)

    async def trace(self, message_id: str, *, by_key: bool = False, limit: int = 64) -> MessageTrace:
        """Return what clients wrote about a message to the trace topic, where tracing is on."""
        return await trace_of(self._admin, message_id, by_key=by_key, limit=limit)

    async def replay(
        self,
        topic: str,
        to: str,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        rate: float | None = None,
    ) -> CopyReport:
        """Copy the messages of a time span to another topic, at most `rate` a second."""
        return await replay.replay(self._admin, topic, to, span_of(since, until), rate=rate)


class DeadLetterRoom(Room):
    """The dead letters of consumer groups."""

    async def list(
        self, group: str, *, since: Moment | None = None, until: Moment | None = None, limit: int = 100
    ) -> tuple[DeadLetterEntry, ...]:
        """Return the first `limit` letters of a group, oldest first, with their topics of origin."""
        found: builtins.list[DeadLetterEntry] = []
        span = span_of(since, until)
        async with contextlib.aclosing(deadletters.read_letters(self._admin, group, span)) as letters:
            async for letter in letters:
                if len(found) >= limit:
                    break
                found.append(letter)
        return tuple(found)

    async def plan_resend(
        self,
        group: str,
        *,
        message_ids: Collection[str] = (),
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> ResendPlan:
        """Return to which topics `resend` would send, and which other groups would get the letters, too."""
        return await deadletters.plan_resend(self._admin, group, message_ids=message_ids, span=span_of(since, until))

    async def resend(
        self,
        group: str,
        *,
        message_ids: Collection[str] = (),
        since: Moment | None = None,
        until: Moment | None = None,
        rate: float | None = None,
    ) -> CopyReport:
        """Send letters to the topics they came from: those named, or all of a time span."""
        span = span_of(since, until)
        plan = await deadletters.plan_resend(self._admin, group, message_ids=message_ids, span=span)
        return await deadletters.resend(self._admin, group, plan.total, message_ids=message_ids, span=span, rate=rate)


class ClusterRoom(Room):
    """Brokers: their state and settings, and the replicas of broker groups."""

    async def brokers(self) -> tuple[BrokerStatus, ...]:
        """Return every broker that the name servers know. One that does not answer is listed with the reason."""
        return await clusters.cluster_status(self._admin)

    async def known(self) -> tuple[KnownBroker, ...]:
        """Return names and addresses of the registered brokers, without asking them."""
        return tuple(await self._admin.brokers())

    async def ping(self) -> tuple[BrokerStatus, ...]:
        """Return the brokers that answer. Raise TransportError if no name server or no broker does."""
        return await clusters.ping(self._admin)

    async def config(self, *, cluster: str | None = None, broker: str | None = None) -> dict[str, dict[str, str]]:
        """Return every setting of the chosen brokers, by broker name."""
        return await clusters.broker_settings(self._admin, cluster=cluster, broker=broker)

    async def set_config(
        self, values: Mapping[str, str], *, cluster: str | None = None, broker: str | None = None
    ) -> tuple[str, ...]:
        """Change settings while the brokers run. Return the warnings of the brokers."""
        _, warnings = await clusters.change_broker_settings(self._admin, values, cluster=cluster, broker=broker)
        return warnings

    async def runtime(self, *, cluster: str | None = None, broker: str | None = None) -> dict[str, Mapping[str, str]]:
        """Return everything that the chosen brokers tell about themselves, under Apache's keys."""
        masters = await self._admin.masters(cluster=cluster, broker=broker)
        return {one.name: await clusters.runtime_info(self._admin, one.address) for one in masters}

    async def replicas(self, group: str | None = None) -> tuple[GroupReplicas, ...]:
        """Return the replicated broker groups with their members."""
        return await replicas.replicated_groups(self._admin, group)

    async def switch_master(self, group: str, replica: int) -> GroupReplicas:
        """Make an in-sync replica the master of its group."""
        return await replicas.switch_master(self._admin, group, replica)

    async def drain(self, broker: str) -> str:
        """Let a broker take no messages. Return its name."""
        return await upkeep.drain(self._admin, broker)

    async def undrain(self, broker: str) -> str:
        """Let a broker take messages again. Return its name."""
        return await upkeep.drain(self._admin, broker, reads_only=False)

    async def clean(self, what: str, *, cluster: str | None = None, broker: str | None = None) -> tuple[str, ...]:
        """Remove expired `queues`, `log` or `topics` now. Return the brokers."""
        return await upkeep.clean(self._admin, what, cluster=cluster, broker=broker)

    async def export(self, *, cluster: str | None = None) -> dict[str, Any]:
        """Return topics, groups and the order of queues as one JSON document."""
        return await portable.export_cluster(self._admin, cluster=cluster)

    async def forget(self, group: str) -> tuple[str, ...]:
        """Make the name servers forget a broker group that is gone for good."""
        return await clusters.forget_group(self._admin, group)


class Admin:
    """An administrator's connection to a cluster.

    `namesrv` lists name servers, separated by semicolons; the default is $NAMESRV_ADDR. Credentials and TLS are those
    of every client.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        timeout_s: float = 5.0,
        access_key: str | None = None,
        secret_key: str | None = None,
        profile: str | None = None,
        tls: ssl.SSLContext | bool | None = None,
    ) -> None:
        config = client_config(
            namesrv, environment(), access_key=access_key, secret_key=secret_key, profile=profile, tls=tls
        )
        self.connection = AdminConnection(
            ";".join(config.namesrv), timeout_s=timeout_s, credentials=config.credentials, tls=config.tls
        )
        self.topics = TopicRoom(self.connection)
        self.groups = GroupRoom(self.connection)
        self.offsets = OffsetRoom(self.connection)
        self.messages = MessageRoom(self.connection)
        self.dead_letters = DeadLetterRoom(self.connection)
        self.cluster = ClusterRoom(self.connection)
        self.users = UserRoom(self.connection)
        self.rights = RightRoom(self.connection)
        self.quotas = QuotaRoom(self.connection)

    async def start(self) -> Self:
        """Do nothing: connections are made when they are needed."""
        return self

    async def close(self) -> None:
        """Close all connections."""
        await self.connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
