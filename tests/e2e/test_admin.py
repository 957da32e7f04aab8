"""aerobee.Admin and aerobee.sync.Admin against a running cluster, with what an application would do."""

from __future__ import annotations

import asyncio
import inspect
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import aerobee
from aerobee import InvalidArgumentError, LitePullConsumer, MessageQueue, sync
from aerobee.admin import blocking, client
from aerobee.errors import TransportError
from aerobee.errors.codes import GroupNotExistError, TopicExistError, TopicNotExistError
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.clusterkit import fill
from aerobee.testing.secrets import secret_for

ROOMS = ("topics", "groups", "offsets", "messages", "dead_letters", "cluster", "users", "rights", "quotas")


def test_both_forms_have_the_same_rooms_and_operations() -> None:
    for room in ROOMS:
        name = "".join(part.title() for part in room.removesuffix("s").split("_")) + "Room"
        ours, theirs = getattr(client, name), getattr(blocking, "Sync" + name)
        operations = {one for one in vars(ours) if not one.startswith("_")}
        assert operations == {one for one in vars(theirs) if not one.startswith("_")}, room
        for one in operations:
            signature = inspect.signature(getattr(ours, one))
            assert signature == inspect.signature(getattr(theirs, one)), one
            assert getattr(ours, one).__doc__ == getattr(theirs, one).__doc__


def test_a_topic_from_its_creation_to_its_end(cluster: LocalCluster) -> None:
    async def main() -> None:
        async with aerobee.Admin(cluster.namesrv) as admin:
            made = await admin.topics.create("made-by-admin", queues=3, attributes={"message.type": "FIFO"})
            assert {one.write_queues for one in made} == {3}
            assert made[0].attributes["message.type"] == "FIFO"
            with pytest.raises(TopicExistError):
                await admin.topics.create("made-by-admin")
            plan = await admin.topics.plan_update("made-by-admin", perm=4)
            assert plan.changes and (await admin.topics.show("made-by-admin")).settings[0].perm == 6
            assert (await admin.topics.update("made-by-admin", perm=4))[0].perm == 4
            assert (await admin.topics.route("made-by-admin"))[0].perm == 4
            assert "made-by-admin" in [one.topic for one in (await admin.topics.list()).topics]
            assert await admin.topics.delete("made-by-admin") == tuple(one.broker for one in made)
            with pytest.raises(TopicNotExistError):
                await admin.topics.show("made-by-admin")

    asyncio.run(main())


def test_groups_offsets_and_messages_without_a_loop(cluster: LocalCluster, topic: str) -> None:
    queue = MessageQueue(topic, cluster.broker_name(0), 0)
    receipts = fill(cluster.namesrv, topic, 5, queue=queue, keys="k")
    group = f"admin-{topic}"
    with sync.Admin(cluster.namesrv) as admin:
        assert admin.groups.create(group, retry_max=2)[0].retry_max_times == 2
        with pytest.raises(GroupNotExistError):
            admin.groups.show(f"no-{group}")
        with sync.LitePullConsumer(cluster.namesrv, group=group) as consumer:
            consumer.commit({queue: 4})
        assert admin.groups.lag(group, topic=topic).lag == 1
        long_ago = datetime.now(UTC) - timedelta(days=1)
        plan = admin.offsets.plan_reset(group, topic, to=long_ago)
        assert (plan.replayed, admin.groups.lag(group, topic=topic).lag) == (4, 1)
        assert admin.offsets.reset(group, topic, to="first").replayed == 4
        assert admin.groups.lag(group, topic=topic).lag == 5
        assert admin.offsets.reset(group, topic, offset=2, queue=0).skipped == 2
        found = admin.messages.find(topic, key="k")
        assert [one.message_id for one in found.messages] == [one.message_id for one in receipts]
        assert admin.messages.find(topic, since=long_ago, limit=2).messages[1].body == b"1"
        assert admin.messages.find(topic, until=long_ago).messages == ()
        one = admin.messages.show(receipts[3].message_id, topic=topic)
        assert one.body == b"3"
        tracks = admin.messages.track(one.message_id, topic=topic)
        assert [(track.group, track.passed) for track in tracks] == [(group, False)]
        admin.topics.create(f"{topic}-copy", queues=1)
        assert admin.messages.replay(topic, f"{topic}-copy").copied == 5
        assert admin.dead_letters.list(group) == ()
        assert admin.dead_letters.resend(group).copied == 0
        assert cluster.broker_name(0) in admin.groups.delete(group)


def test_the_cluster_and_its_settings(cluster: LocalCluster) -> None:
    name = cluster.broker_name(0)
    with sync.Admin(cluster.namesrv) as admin:
        assert [one.broker for one in admin.cluster.brokers()] == [one.name for one in admin.cluster.known()]
        before = admin.cluster.config(broker=name)[name]["fileReservedTime"]
        assert admin.cluster.set_config({"fileReservedTime": "71"}, broker=name) == ()
        assert admin.cluster.config(broker=name)[name]["fileReservedTime"] == "71"
        admin.cluster.set_config({"fileReservedTime": before})
        assert admin.cluster.runtime()[name]["brokerVersionDesc"]
        assert admin.cluster.ping()[0].is_active
        assert admin.cluster.replicas() == ()


@pytest.mark.parametrize("arguments", [{}, {"to": "middle"}, {"to": "first", "offset": 1}, {"to": True}], ids=str)
def test_a_reset_without_one_target_is_refused(cluster: LocalCluster, arguments: dict[str, object]) -> None:
    with sync.Admin(cluster.namesrv) as admin, pytest.raises(InvalidArgumentError):
        admin.offsets.plan_reset("g", "t", **arguments)  # type: ignore[arg-type]


def test_quotas_are_set_and_removed(cluster: LocalCluster) -> None:
    name = cluster.broker_name(0)
    with sync.Admin(cluster.namesrv) as admin:
        assert admin.quotas.set("topic:orders", messages_s=10) == (name,)
        assert [(one.name, one.messages_s) for one in admin.quotas.list()[name]] == [("orders", 10)]
        assert admin.quotas.remove("topic:orders") == (name,)
        assert admin.quotas.list() == {name: ()}
        for who in ("orders", "planet:mars", "topic:"):
            with pytest.raises(InvalidArgumentError):
                admin.quotas.set(who, messages_s=1)


def test_where_nobody_listens_it_says_so() -> None:
    with sync.Admin("127.0.0.1:1", timeout_s=2) as admin, pytest.raises(TransportError, match="no name server"):
        admin.topics.list()


def test_credentials_reach_the_clients_beside_it(cluster: LocalCluster) -> None:
    admin = aerobee.Admin(cluster.namesrv, access_key="me", secret_key=secret_for("me"))
    options = admin.connection.client_options
    assert (options["access_key"], options["secret_key"]) == ("me", secret_for("me"))
    assert secret_for("me") not in repr(admin.connection.credentials)
    consumer = LitePullConsumer(cluster.namesrv, group="g", **options)
    assert consumer is not None


def test_the_page_lists_every_operation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "admin.md").read_text()
    for room in ROOMS:
        name = "".join(part.title() for part in room.removesuffix("s").split("_")) + "Room"
        row = next(line for line in page.splitlines() if line.startswith(f"| `{room}`"))
        told = re.findall(r"`(\w+)`", row.split("|")[2])
        assert told == [one for one in vars(getattr(client, name)) if not one.startswith("_")]
