"""Changes of groups: create, change, delete, reset and clone offsets."""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.admin import groups as admin_groups
from aerobee.admin.groups import GroupChange, create_group, delete_group, group_details, update_group
from aerobee.admin.members import CloneQueue, clone_offsets, plan_clone
from aerobee.admin.offsets import BY_MEMBERS, QueueReset, ResetPlan, ResetTarget, plan_reset, reset_offsets
from aerobee.dashboard.blocks import Block
from aerobee.dashboard.moments import moment_of
from aerobee.dashboard.pages.words import broker_link, counted, groups_to_suggest, topic_link
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.registry import ActionOutcome, ActionPlan, FormField, PageView, action
from aerobee.dashboard.security import Role
from aerobee.errors import InvalidArgumentError
from aerobee.model.names import require_group
from aerobee.model.numbers import int_or

_YES_NO = [("", "as it is"), ("yes", "yes"), ("no", "no")]
_WAYS = [
    ("first", "the first message"),
    ("last", "after the last message"),
    ("time", "a moment"),
    ("offset", "an offset"),
]
_ROWS = {"size": "500"}


def _group_page(view: PageView) -> str:
    return f"/groups/{view.path['group']}"


def _whole(view: PageView, name: str, label: str, low: int, high: int) -> int | None:
    text = view.word(name)
    if not text:
        return None
    number = int_or(text, None, low, high)
    if number is None:
        raise InvalidArgumentError(f"{label} must be a number from {low} to {high}")
    return number


# -- create


def _create_fields(view: PageView) -> Sequence[FormField]:
    return [
        FormField("group", "Name", required=True),
        FormField("retries", "Retries before a message is a dead letter", "number", default="16"),
        FormField("orderly", "Its members consume in order", "checkbox"),
        FormField("broadcast", "Its members may consume by broadcast", "checkbox", default="1"),
    ]


async def _plan_create(view: PageView) -> ActionPlan:
    name = view.word("group")
    require_group(name)
    if name in view.data.snapshot.groups:
        return ActionPlan([], problem=f"Group {name} exists already.")
    masters = await view.admin.masters()
    return ActionPlan([f"Group {name} is made on {', '.join(one.name for one in masters)}."])


@action(
    "/groups/create", _plan_create, title="Create a group", role=Role.operator, button="Create it",
    fields=_create_fields, back=lambda view: "/groups",
)  # fmt: skip
async def create(view: PageView) -> ActionOutcome:
    name = view.word("group")
    change = GroupChange(
        consume_broadcast_enable=bool(view.word("broadcast")),
        consume_message_orderly=bool(view.word("orderly")),
        retry_max_times=_whole(view, "retries", "The number of retries", -1, 1_000_000),
    )
    made = await create_group(view.admin, name, change)
    return ActionOutcome(
        [f"Group {name} is on {', '.join(one.broker for one in made)}."], next=(f"/groups/{name}", f"Go to {name}")
    )


# -- change


def _update_fields(view: PageView) -> Sequence[FormField]:
    return [
        FormField("consume", "May consume", "select", options=_YES_NO),
        FormField("broadcast", "May consume by broadcast", "select", options=_YES_NO),
        FormField("orderly", "Consumes in order", "select", options=_YES_NO),
        FormField("retry_queues", "Retry queues", "number", help="Empty leaves it as it is."),
        FormField("retries", "Retries before a message is a dead letter", "number", help="Empty leaves it as it is."),
    ]


def _flag(view: PageView, name: str) -> bool | None:
    return {"yes": True, "no": False}.get(view.word(name))


def _updated(view: PageView) -> GroupChange:
    return GroupChange(
        _flag(view, "consume"), _flag(view, "broadcast"), _flag(view, "orderly"),
        _whole(view, "retry_queues", "The number of retry queues", 1, 1_000),
        _whole(view, "retries", "The number of retries", -1, 1_000_000),
    )  # fmt: skip


async def _plan_update(view: PageView) -> ActionPlan:
    plan = await admin_groups.plan_update(view.admin, view.path["group"], _updated(view))
    if not plan.changes:
        return ActionPlan([], problem="Nothing would change.")
    warnings = []
    if plan.members and view.word("consume") == "no":
        warnings.append(f"Connected now: {counted(plan.members, 'member')}. No more messages come to them.")
    return ActionPlan([f"On {', '.join(plan.brokers)}: {change}." for change in plan.changes], warnings=warnings)


@action(
    "/groups/{group}/update", _plan_update, title="Change a group", role=Role.operator, button="Change it",
    fields=_update_fields, back=_group_page,
)  # fmt: skip
async def update(view: PageView) -> ActionOutcome:
    made = await update_group(view.admin, view.path["group"], _updated(view))
    return ActionOutcome([f"Group {view.path['group']} is changed on {', '.join(one.broker for one in made)}."])


# -- delete


async def _plan_delete(view: PageView) -> ActionPlan:
    name = view.path["group"]
    details = await group_details(view.admin, name)
    warnings = [*details.progress.problems]
    if details.members:
        warnings.append(
            f"Connected now: {counted(len(details.members), 'member')}. "
            "They make the group again where brokers allow that."
        )
    lag = details.progress.lag
    where = ", ".join(one.broker for one in details.settings) or "no broker"
    sentences = [
        f"Group {name} is deleted on {where}, with its offsets in {counted(len(details.progress.queues), 'queue')}."
    ]
    if lag:
        sentences.append(f"{lag:,} messages were not consumed by it. They stay in their topics.")
    return ActionPlan(sentences, warnings=warnings)


@action(
    "/groups/{group}/delete", _plan_delete, title="Delete a group", role=Role.admin, button="Delete it",
    named=lambda view: view.path["group"], back=_group_page,
)  # fmt: skip
async def delete(view: PageView) -> ActionOutcome:
    name = view.path["group"]
    brokers = await delete_group(view.admin, name)
    return ActionOutcome([f"Group {name} is deleted on {', '.join(brokers)}."], next=("/groups", "Go to the groups"))


# -- reset


def _topics_of(view: PageView) -> Sequence[str]:
    """Return the topics in which the group has offsets, as far as is known."""
    numbers = view.data.snapshot.group_numbers.get(view.path["group"])
    return () if numbers is None else numbers.topics[:100]


def _reset_fields(view: PageView) -> Sequence[FormField]:
    known = _topics_of(view)
    return [
        FormField("topic", "Topic", required=True, default=known[0] if len(known) == 1 else "", suggested=known),
        FormField("to", "Go on reading at", "select", options=_WAYS, default="first"),
        FormField("value", "The moment or the offset", help="2026-11-18T10:00 (UTC), or 30m, 2h, 1d ago; or a number."),
        FormField("queue", "Only this queue", "number", help="Empty: every queue."),
    ]


def _target(view: PageView) -> ResetTarget:
    to, value = view.word("to", "first") or "first", view.word("value")
    if to == "time":
        moment = moment_of(value, view.now_ms)
        if moment is None:
            raise InvalidArgumentError("name the moment")
        return ResetTarget(time_ms=moment)
    if to == "offset":
        offset = int_or(value, None, 0)
        if offset is None:
            raise InvalidArgumentError(f"{value[:40]!r} is no offset")
        return ResetTarget(offset=offset)
    return ResetTarget(edge=to)


async def _planned_reset(view: PageView) -> tuple[ResetPlan, ResetTarget]:
    target = _target(view)
    queue = _whole(view, "queue", "The queue", 0, 1 << 31)
    return await plan_reset(view.admin, view.path["group"], view.word("topic"), target, queue_id=queue), target


_RESETS: Listing[QueueReset] = Listing(
    "queues",
    "Queues",
    [
        Column("broker", "Broker", lambda one: broker_link(one.broker)),
        Column("queue", "Queue", lambda one: one.queue_id, right=True),
        Column("from", "Offset now", lambda one: one.from_offset, right=True),
        Column("to", "Offset then", lambda one: one.to_offset, right=True),
        Column("replayed", "Delivered again", lambda one: one.replayed, right=True),
        Column("skipped", "Never delivered", lambda one: one.skipped, right=True),
    ],
    "The topic has no queue that can be read.",
)


async def _plan_reset(view: PageView) -> ActionPlan:
    plan, _ = await _planned_reset(view)
    sentences = [
        f"Group {plan.group} goes on reading {counted(len(plan.queues), 'queue')} of {plan.topic} at other offsets: "
        f"{counted(plan.replayed, 'message is', 'messages are')} delivered again, {plan.skipped:,} never.",
        f"Connected now: {counted(plan.members, 'member')}. They learn it with their next pull."
        if plan.members
        else "No member is connected.",
    ]
    told = sorted(name for name, way in plan.ways.items() if way == BY_MEMBERS)
    warnings = [f"{', '.join(told)} can only tell the members, who reset by time."] if told else []
    return ActionPlan(sentences, [table_of(plan.queues, _RESETS, _ROWS, alone=False)], warnings)


@action(
    "/groups/{group}/reset", _plan_reset, title="Reset the offsets of a group", role=Role.operator, button="Reset them",
    fields=_reset_fields, back=_group_page,
    about="A reset moves the place where a group goes on reading. It deletes no message.",
)  # fmt: skip
async def reset(view: PageView) -> ActionOutcome:
    plan, target = await _planned_reset(view)
    await reset_offsets(view.admin, plan, target)
    words = (
        f"The offsets of {plan.group} in {len(plan.queues)} queues of {plan.topic} are reset: {plan.replayed:,} "
        f"messages are delivered again, {plan.skipped:,} are never delivered."
    )
    return ActionOutcome(
        [words], [table_of(plan.queues, _RESETS, _ROWS, alone=False)], next=(_group_page(view), "Go to the group")
    )


# -- clone


def _clone_fields(view: PageView) -> Sequence[FormField]:
    return [
        FormField("target", "Group that gets the offsets", required=True, suggested=groups_to_suggest(view)),
        FormField("topic", "Only this topic", help="Empty: every topic of this group.", suggested=_topics_of(view)),
    ]


_CLONES: Listing[CloneQueue] = Listing(
    "queues",
    "Queues",
    [
        Column("topic", "Topic", lambda one: topic_link(one.topic)),
        Column("broker", "Broker", lambda one: broker_link(one.broker)),
        Column("queue", "Queue", lambda one: one.queue_id, right=True),
        Column("before", "Offset of the target now", lambda one: one.before, right=True),
        Column("after", "Then", lambda one: one.after, right=True),
    ],
    "The group has no offsets that could be cloned.",
)


async def _plan_clone(view: PageView) -> ActionPlan:
    plan = await plan_clone(view.admin, view.path["group"], view.word("target"), topic=view.word("topic") or None)
    blocks: list[Block] = [table_of(plan.queues, _CLONES, _ROWS, alone=False)]
    if plan.members:
        words = f"Group {plan.target} has {plan.members} members, which would overwrite the offsets. Stop them first."
        return ActionPlan([], blocks, problem=words)
    return ActionPlan([f"Group {plan.target} gets the offsets of {plan.source} in {len(plan.queues)} queues."], blocks)


@action(
    "/groups/{group}/clone", _plan_clone, title="Clone the offsets of a group", role=Role.operator, button="Clone them",
    fields=_clone_fields, back=_group_page,
)  # fmt: skip
async def clone(view: PageView) -> ActionOutcome:
    plan = await plan_clone(view.admin, view.path["group"], view.word("target"), topic=view.word("topic") or None)
    await clone_offsets(view.admin, plan)
    return ActionOutcome(
        [f"Group {plan.target} goes on where {plan.source} is, in {len(plan.queues)} queues."],
        next=(f"/groups/{plan.target}", f"Go to {plan.target}"),
    )
