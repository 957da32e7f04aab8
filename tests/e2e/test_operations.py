"""`message`, `group reset`, `replay`, `topic forward` and `dlq` as an operator uses them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from click.testing import CliRunner, Result

from aerobee import DeadLetter, LitePullConsumer, Message, MessageQueue, PushConsumer
from aerobee import sync as sync_clients
from aerobee.cli.main import main
from aerobee.testing.cluster import LocalCluster
from aerobee.testing.clusterkit import fill
from aerobee.testing.commands import aerobee


def run(cluster: LocalCluster, *words: str, given: str | None = None) -> Result:
    return CliRunner().invoke(main, [*words, "-n", cluster.namesrv], input=given)


def told(cluster: LocalCluster, *words: str) -> Any:
    result = run(cluster, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def lines(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def stand(cluster: LocalCluster, group: str, saved: dict[MessageQueue, int]) -> None:
    """A group that is away, with these offsets."""
    assert run(cluster, "group", "create", "-g", group).exit_code == 0

    async def commit() -> None:
        async with LitePullConsumer(cluster.namesrv, group=group) as consumer:
            await consumer.commit(saved)

    asyncio.run(commit())


def test_a_message_is_shown_found_and_tracked(cluster: LocalCluster, topic: str) -> None:
    receipt = fill(cluster.namesrv, topic, 3, keys="k1", tags="red", properties={"color": "blue"})[1]
    shown = told(cluster, "message", "show", receipt.message_id, "-t", topic)
    assert (shown["body"], shown["keys"], shown["tags"]) == ("1", "k1", "red")
    assert shown["properties"] == {"color": "blue"}
    text = run(cluster, "message", "show", shown["offset_id"]).stdout
    assert receipt.message_id in text and "color=blue" in text

    by_key = run(cluster, "message", "find", "-t", topic, "--key", "k1", "--json")
    assert sorted(one["body"] for one in lines(by_key)) == ["0", "1", "2"]
    by_time = run(cluster, "message", "find", "-t", topic, "--from", "0", "--limit", "2")
    assert len(by_time.stdout.splitlines()) == 2
    by_id = run(cluster, "message", "find", "-t", topic, "--id", receipt.message_id, "--json")
    assert [one["body"] for one in lines(by_id)] == ["1"]

    where = MessageQueue(topic, receipt.broker, receipt.queue_id)
    stand(cluster, f"away-{topic}", {where: receipt.queue_offset + 1})
    tracked = told(cluster, "message", "track", "-t", topic, receipt.message_id)
    assert [(one["group"], one["track"], one["passed"]) for one in tracked["groups"]] == [
        (f"away-{topic}", "NOT_ONLINE", True)
    ]
    assert "not online, offset beyond it" in run(cluster, "message", "track", "-t", topic, receipt.message_id).stdout


def test_a_message_cannot_steer_the_terminal(cluster: LocalCluster, topic: str) -> None:
    with sync_clients.Producer(cluster.namesrv) as producer:
        receipt = producer.send(topic, b"two\nlines \x1b[2J", properties={"name": "\x1b]0;owned\x07"})
    text = run(cluster, "message", "show", receipt.message_id, "-t", topic).stdout
    assert "two\nlines .[2J" in text and "name=.]0;owned." in text
    assert "\x1b" not in text


def test_what_is_not_there_ends_with_1_and_wrong_usage_with_2(cluster: LocalCluster, topic: str) -> None:
    missing = aerobee("message", "show", "7F" * 16, "-t", topic, "-n", cluster.namesrv, "--json")
    assert missing.returncode == 1
    assert json.loads(missing.stderr)["error"] == f"there is no message {'7F' * 16} in topic {topic}"
    assert run(cluster, "message", "find", "-t", topic, "--key", "none").exit_code == 1
    assert run(cluster, "message", "find", "-t", topic).exit_code == 2
    assert run(cluster, "message", "find", "-t", topic, "--from", "yesterday").exit_code == 2
    assert run(cluster, "group", "reset", "-g", "g", "-t", topic).exit_code == 2
    assert run(cluster, "group", "reset", "-g", "nobody", "-t", topic, "--to", "first").exit_code == 1
    assert run(cluster, "group", "lag", "-g", "g", "--members").exit_code == 2
    assert run(cluster, "dlq", "resend", "-g", "g").exit_code == 2
    assert run(cluster, "dlq", "list", "-g", "nobody").exit_code == 1
    nobody = aerobee("dlq", "list", "-g", "g", "-n", "127.0.0.1:1")
    assert nobody.returncode == 3 and "Traceback" not in nobody.stderr


def test_a_reset_is_shown_asked_for_and_done(cluster: LocalCluster, topic: str) -> None:
    queue = MessageQueue(topic, cluster.broker_name(0), 0)
    fill(cluster.namesrv, topic, 6, queue=queue)
    group = f"back-{topic}"
    stand(cluster, group, {queue: 4})
    words = ("group", "reset", "-g", group, "-t", topic)
    dry = told(cluster, *words, "--to", "first", "--dry-run")
    assert (dry["dry_run"], dry["replayed"], dry["skipped"]) == (True, 4, 0)
    assert [(one["from_offset"], one["to_offset"]) for one in dry["queues"]] == [(4, 0), (None, 0)]
    refused = run(cluster, *words, "--to", "last", given="n\n")
    assert refused.exit_code == 1 and "nothing was changed" in refused.stderr
    assert told(cluster, *words, "--to", "first", "--dry-run")["replayed"] == 4

    done = aerobee(*words, "--to", "first", "--yes", "-n", cluster.namesrv)
    assert (done.returncode, done.stdout) == (
        0,
        f"group {group} was reset in topic {topic}: 4 messages come again, 0 are skipped\n",
    )
    assert told(cluster, *words, "--to-offset", "5", "--queue", "0", "--yes")["skipped"] == 5
    assert told(cluster, "group", "lag", "-g", group, "-t", topic, "--members")["members"] == []
    again = run(cluster, "consume", "-t", topic, "-g", group, "--until-end", "--json")
    assert [one["body"] for one in lines(again)] == ["5"]


def test_a_replay_and_a_forward(cluster: LocalCluster, topic: str) -> None:
    wide, copy = f"{topic}-wide", f"{topic}-copy"
    cluster.create_topic(wide, queues=4)
    cluster.create_topic(copy, queues=1)
    fill(cluster.namesrv, topic, 20, keys="k")
    words = ("replay", "-t", topic, "--to", copy, "--from", "2020-01-01T00:00:00")
    assert told(cluster, *words, "--dry-run")["total"] == 20
    assert cluster.messages(copy) == []
    done = aerobee(*words, "--rate", "1000", "-n", cluster.namesrv)
    assert done.returncode == 0 and done.stdout.startswith(f"20 of 20 messages of {topic} copied to {copy}")
    assert sorted(int(one.body) for one in cluster.messages(copy)) == list(range(20))

    group = f"slow-{topic}"
    stand(cluster, group, {MessageQueue(topic, cluster.broker_name(0), 0): 1})
    forward = ("topic", "forward", "-t", topic, "--to", wide, "-g", group)
    assert told(cluster, *forward, "--dry-run")["total"] == 19
    assert run(cluster, *forward, given="n\n").exit_code == 1
    assert told(cluster, *forward, "--yes")["copied"] == 19
    assert len(cluster.messages(wide)) == 19
    assert told(cluster, "group", "lag", "-g", group, "-t", topic)["lag"] == 0
    assert run(cluster, "replay", "-t", topic, "--to", "misspelt", "--from", "0").exit_code == 1


def give_up(cluster: LocalCluster, topic: str, group: str, count: int) -> None:
    async def run_consumer() -> None:
        consumer = PushConsumer(cluster.namesrv, group=group, consume_from="first")
        done, seen = asyncio.Event(), 0

        @consumer.listener(topic)
        async def handle(message: Message) -> None:
            nonlocal seen
            seen += 1
            if seen == count:
                done.set()
            raise DeadLetter("cannot be read")

        async with asyncio.timeout(30), consumer:
            await done.wait()
            while len(cluster.messages(f"%DLQ%{group}")) < count:  # noqa: ASYNC110 - a server is waited for
                await asyncio.sleep(0.01)

    asyncio.run(run_consumer())


def test_dead_letters_listed_exported_and_sent_again(cluster: LocalCluster, topic: str) -> None:
    group = f"g-{topic}"
    fill(cluster.namesrv, topic, 4, keys="k", tags="red")
    give_up(cluster, topic, group, 4)
    stand(cluster, f"other-{topic}", {MessageQueue(topic, cluster.broker_name(0), 0): 0})
    listed: list[Any] = []
    for _ in range(100):  # the name server learns of the new topic a moment later
        if len(listed) == 4:
            break
        listed = lines(run(cluster, "dlq", "list", "-g", group, "--json"))
    assert sorted(one["body"] for one in listed) == ["0", "1", "2", "3"]
    assert {one["origin_topic"] for one in listed} == {topic}
    text = run(cluster, "dlq", "list", "-g", group, "--limit", "2")
    assert len(text.stdout.splitlines()) == 2 and "the first 2" in text.stderr

    exported = aerobee("dlq", "export", "-g", group, "-n", cluster.namesrv)
    assert [json.loads(line) for line in exported.stdout.splitlines()] == listed

    dry = told(cluster, "dlq", "resend", "-g", group, "--all", "--dry-run")
    assert (dry["total"], dry["topics"], dry["other_groups"]) == (4, {topic: 4}, {topic: [f"other-{topic}"]})
    refused = run(cluster, "dlq", "resend", "-g", group, "--all", given="n\n")
    assert refused.exit_code == 1 and f"other-{topic} will get them, too" in refused.stderr
    one = listed[0]["message_id"]
    assert told(cluster, "dlq", "resend", "-g", group, "--id", one, "--yes")["copied"] == 1
    assert told(cluster, "dlq", "resend", "-g", group, "--all", "--yes")["copied"] == 4
    assert len(cluster.messages(topic)) == 9
