"""Changes of topics: create, change, delete, publish, copy."""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.admin import topics as admin_topics
from aerobee.admin.messages import Span, find_message
from aerobee.admin.replay import count_range, producer_of, replay
from aerobee.admin.topics import TopicChange, create_topic, delete_topic, topic_details, update_topic
from aerobee.dashboard.moments import moment_of
from aerobee.dashboard.pages.words import topics_to_suggest
from aerobee.dashboard.registry import ActionOutcome, ActionPlan, FormField, PageView, action
from aerobee.dashboard.security import Role
from aerobee.errors import InvalidArgumentError
from aerobee.errors.codes import TopicNotExistError
from aerobee.model.message import Message
from aerobee.model.names import require_topic
from aerobee.model.numbers import int_or
from aerobee.model.sysproperties import SHARDING_KEY
from aerobee.model.topic import PERM_READ, PERM_WRITE

_TYPES = [("", "any"), ("NORMAL", "NORMAL"), ("FIFO", "FIFO"), ("DELAY", "DELAY"), ("TRANSACTION", "TRANSACTION")]
_PERMS = [("6", "read and write"), ("4", "read only"), ("2", "write only"), ("0", "nothing")]
_COPY_MAX = 1_000_000


def _topic_page(view: PageView) -> str:
    return f"/topics/{view.path['topic']}"


# -- create


def _create_fields(view: PageView) -> Sequence[FormField]:
    clusters = sorted({one.cluster for one in view.data.snapshot.known})
    return [
        FormField("topic", "Name", required=True),
        FormField("queues", "Queues on each broker", "number", default=str(admin_topics.DEFAULT_QUEUES)),
        FormField("type", "Type of its messages", "select", options=_TYPES),
        FormField("perm", "Allowed", "select", default="6", options=_PERMS),
        FormField("order", "Keep the order of queues when brokers leave", "checkbox"),
        FormField("cluster", "Cluster", "select", options=[("", "every cluster"), *((one, one) for one in clusters)]),
    ]


def _queues(view: PageView, name: str) -> int | None:
    text = view.word(name)
    if not text:
        return None
    count = int_or(text, None, 1, 65_535)
    if count is None:
        raise InvalidArgumentError(f"{text[:40]!r} is no number of queues")
    return count


def _created(view: PageView) -> TopicChange:
    queues = _queues(view, "queues")
    attributes = {"+message.type": view.word("type")} if view.word("type") else {}
    perm = int_or(view.word("perm"), PERM_READ | PERM_WRITE, 0, 7)
    return TopicChange(queues, queues, perm, bool(view.word("order")), attributes)


async def _plan_create(view: PageView) -> ActionPlan:
    name = view.word("topic")
    require_topic(name)
    change = _created(view)
    masters = await view.admin.masters(cluster=view.word("cluster") or None)
    count = change.write_queues or admin_topics.DEFAULT_QUEUES
    if name in view.data.snapshot.topics:
        return ActionPlan([], problem=f"Topic {name} exists already.")
    where = ", ".join(one.name for one in masters)
    return ActionPlan([f"Topic {name} is made with {count} queues on each of {len(masters)} brokers: {where}."])


@action(
    "/topics/create", _plan_create, title="Create a topic", role=Role.operator, button="Create it",
    fields=_create_fields, back=lambda view: "/topics",
)  # fmt: skip
async def create(view: PageView) -> ActionOutcome:
    name = view.word("topic")
    made = await create_topic(view.admin, name, _created(view), cluster=view.word("cluster") or None)
    words = f"Topic {name} is on {', '.join(one.broker for one in made)} with {made[0].write_queues} queues each."
    return ActionOutcome([words], next=(f"/topics/{name}", f"Go to {name}"))


# -- change


def _update_fields(view: PageView) -> Sequence[FormField]:
    known = view.data.snapshot.topics.get(view.path["topic"])
    brokers = () if known is None else known.brokers
    return [
        FormField("read", "Queues to read, on each broker", "number", help="Empty leaves it as it is."),
        FormField("write", "Queues to write, on each broker", "number", help="Empty leaves it as it is."),
        FormField("perm", "Allowed", "select", options=[("", "as it is"), *_PERMS]),
        FormField(
            "broker", "Broker", "select", options=[("", "every broker that has it"), *((one, one) for one in brokers)]
        ),
    ]


def _updated(view: PageView) -> TopicChange:
    perm = int_or(view.word("perm"), None, 0, 7) if view.word("perm") else None
    return TopicChange(_queues(view, "read"), _queues(view, "write"), perm)


async def _plan_update(view: PageView) -> ActionPlan:
    name = view.path["topic"]
    plan = await admin_topics.plan_update(view.admin, name, _updated(view), broker=view.word("broker") or None)
    if not plan.changes:
        return ActionPlan([], problem="Nothing would change.")
    warnings = []
    if plan.out_of_reach:
        warnings.append(f"{plan.out_of_reach:,} messages are in queues that nobody could read any more.")
    return ActionPlan([f"On {', '.join(plan.brokers)}: {change}." for change in plan.changes], warnings=warnings)


@action(
    "/topics/{topic}/update", _plan_update, title="Change a topic", role=Role.operator, button="Change it",
    fields=_update_fields, back=_topic_page,
)  # fmt: skip
async def update(view: PageView) -> ActionOutcome:
    name = view.path["topic"]
    made = await update_topic(view.admin, name, _updated(view), broker=view.word("broker") or None)
    return ActionOutcome(
        [
            f"On {one.broker}, {name} has {one.read_queues} queues to read and {one.write_queues} to write."
            for one in made
        ]
    )


# -- delete


async def _plan_delete(view: PageView) -> ActionPlan:
    name = view.path["topic"]
    details = await topic_details(view.admin, name)
    where = ", ".join(one.broker for one in details.settings)
    warnings = [*details.problems]
    if details.groups:
        warnings.append(f"These groups consume it: {', '.join(details.groups[:20])}.")
    return ActionPlan(
        [f"Topic {name} is deleted on {where}, with its {details.messages:,} messages."], warnings=warnings
    )


@action(
    "/topics/{topic}/delete", _plan_delete, title="Delete a topic", role=Role.admin, button="Delete it",
    named=lambda view: view.path["topic"], back=_topic_page,
)  # fmt: skip
async def delete(view: PageView) -> ActionOutcome:
    name = view.path["topic"]
    brokers = await delete_topic(view.admin, name)
    return ActionOutcome([f"Topic {name} is deleted on {', '.join(brokers)}."], next=("/topics", "Go to the topics"))


# -- publish


def _publish_fields(view: PageView) -> Sequence[FormField]:
    return [
        FormField("copy_of", "", "hidden", late=True),
        FormField("body", "Body", "area", late=True),
        FormField("tags", "Tag", late=True),
        FormField("keys", "Keys, separated by blanks", late=True),
        FormField("delay_s", "Deliver after so many seconds", "number", late=True, help="Empty delivers it at once."),
        FormField("sharding_key", "Sharding key", late=True, help="Messages with one key go to one queue."),
        FormField("properties", "Properties", "area", late=True, help="One name=value on each line."),
    ]


async def _plan_publish(view: PageView) -> ActionPlan:
    name = view.path["topic"]
    details = await topic_details(view.admin, name)
    who = ", ".join(details.groups[:10]) or "no group yet"
    sentences = [f"One message is stored in topic {name}. It is delivered to {who}."]
    if view.word("copy_of"):
        sentences.append(f"It is a copy of {view.word('copy_of')}, with what you change below.")
        if not _is_text((await _original(view)).body):
            sentences.append("The body is not text. Leave it empty to send the bytes of the original.")
    return ActionPlan(sentences, warnings=details.problems)


async def _original(view: PageView) -> Message:
    """Return the message that is copied."""
    source, _, message_id = view.word("copy_of").rpartition("/")
    return await find_message(view.admin, message_id, topic=source)


def _is_text(body: bytes) -> bool:
    try:
        return "\0" not in body.decode()
    except UnicodeDecodeError:
        return False


async def _prefill(view: PageView) -> dict[str, str]:
    """Return the values of the message that is copied."""
    if not view.word("copy_of"):
        return {}
    if not view.shows_bodies:
        raise InvalidArgumentError("a viewer cannot copy messages")
    one = await _original(view)
    return {
        "tags": one.tags,
        "keys": one.keys,
        "properties": "\n".join(f"{name}={value}" for name, value in one.properties.items()),
        "body": one.body.decode() if _is_text(one.body) else "",
        "sharding_key": one.system_properties.get(SHARDING_KEY, ""),
    }


def properties_of(text: str) -> dict[str, str]:
    """Return the properties of lines such as name=value. Raise InvalidArgumentError."""
    found = {}
    for line in text.splitlines():
        if line.strip():
            name, equals, value = line.partition("=")
            if not equals or not name.strip():
                raise InvalidArgumentError(f"{line[:60]!r} is not name=value")
            found[name.strip()] = value
    return found


@action(
    "/topics/{topic}/publish", _plan_publish, title="Publish a message", role=Role.operator, button="Publish it",
    fields=_publish_fields, back=_topic_page, prefill=_prefill,
)  # fmt: skip
async def publish(view: PageView) -> ActionOutcome:
    name = view.path["topic"]
    # A sender makes topics that do not exist, where brokers allow that.
    if await view.admin.route(name) is None:
        raise TopicNotExistError(f"topic {name} does not exist")
    # A browser sends every line end as two characters.
    body = view.query.get("body", "").replace("\r\n", "\n").encode("utf-8", "surrogateescape")
    if not body and view.word("copy_of"):
        body = (await _original(view)).body
    if not body:
        raise InvalidArgumentError("no broker takes a message without a body")
    delay = int_or(view.word("delay_s"), None, 1, 40 * 86_400) if view.word("delay_s") else None
    if view.word("delay_s") and delay is None:
        raise InvalidArgumentError("the delay must be from 1 second to 40 days")
    async with producer_of(view.admin) as producer:
        receipt = await producer.send(
            name, body, tags=view.word("tags"), keys=view.word("keys"),
            properties=properties_of(view.query.get("properties", "")),
            sharding_key=view.word("sharding_key") or None, delay=delay,
        )  # fmt: skip
    words = f"The message is stored in queue {receipt.queue_id} of {receipt.broker}: {receipt.message_id}."
    return ActionOutcome([words], next=(f"/messages/{name}/{receipt.message_id}", "Look at it"))


# -- copy


def _copy_fields(view: PageView) -> Sequence[FormField]:
    return [
        FormField("to", "Topic that gets the copies", required=True, suggested=topics_to_suggest(view)),
        FormField(
            "since",
            "Stored at or after",
            help="Such as 2026-11-18T10:00, in UTC; or 30m, 2h, 1d ago. Empty: the first.",
        ),
        FormField("until", "Stored before", help="The same. Empty: until now."),
        FormField("rate", "Copies a second", "number", help="Empty copies as fast as it goes."),
    ]


def _span(view: PageView) -> Span:
    every = Span()
    since = moment_of(view.word("since"), view.now_ms)
    until = moment_of(view.word("until"), view.now_ms)
    return Span(every.begin_ms if since is None else since, every.end_ms if until is None else until)


async def _plan_copy(view: PageView) -> ActionPlan:
    name, target = view.path["topic"], view.word("to")
    details = await topic_details(view.admin, target)
    count = await count_range(view.admin, name, _span(view))
    if count > _COPY_MAX:
        return ActionPlan([], problem=f"{count:,} messages are too many for a page: `aerobee replay` copies them.")
    who = ", ".join(details.groups[:10]) or "no group yet"
    return ActionPlan(
        [f"At most {count:,} messages of {name} are sent again to {target}, which is consumed by {who}."],
        warnings=["The copies have new ids. A copy that was begun cannot be taken back."],
    )


@action(
    "/topics/{topic}/copy", _plan_copy, title="Copy messages to another topic", role=Role.operator, button="Copy them",
    fields=_copy_fields, back=_topic_page,
)  # fmt: skip
async def copy(view: PageView) -> ActionOutcome:
    rate = int_or(view.word("rate"), None, 1, 1_000_000) if view.word("rate") else None
    report = await replay(view.admin, view.path["topic"], view.word("to"), _span(view), rate=rate)
    words = [f"{report.copied:,} of {report.total:,} messages were copied to {report.target}."]
    if report.skipped:
        words.append(f"{report.skipped:,} have no body, which no broker takes, and were left out.")
    if report.problem:
        words.append(f"It stopped early: {report.problem}")
    return ActionOutcome(words, ok=report.problem is None, next=(f"/topics/{report.target}", f"Go to {report.target}"))
