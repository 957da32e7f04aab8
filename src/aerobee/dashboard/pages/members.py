"""The members of a group: what each has, what waits in it, its stacks; and all clients by address and version."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aerobee.admin.groups import list_producers
from aerobee.admin.members import MemberQueue, MemberState, members_of
from aerobee.dashboard.blocks import Badge, Block, Cell, Choice, Mono, Note, PageLink, Text, Time, WebPage
from aerobee.dashboard.pages.groups import tabs
from aerobee.dashboard.pages.words import broker_link, group_link, several, several_words, topic_link, version_text
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.registry import PageView, page
from aerobee.dashboard.security import Role
from aerobee.model.names import RETRY_PREFIX
from aerobee.protocol.versions import version_name

_SHOWN_GROUPS = 5


@page("/groups/{group}/members", title="Members")
async def members(view: PageView) -> WebPage:
    name = view.path["group"]
    wants_stacks = bool(view.word("stacks")) and view.may(Role.operator)
    found = await members_of(view.admin, name, stack=wants_stacks)
    queues = [(one.client_id, queue) for one in found for queue in one.queues]
    blocks: list[Block] = [table_of(found, _MEMBERS, {"size": "500"}, alone=False)]
    owners: dict[tuple[str, str, int], list[str]] = {}
    for client_id, queue in queues:
        owners.setdefault((queue.topic, queue.broker, queue.queue_id), []).append(client_id)
    twice = [place for place, clients in owners.items() if len(clients) > 1]
    if twice:
        words = (
            f"{len(twice)} queues are with several members now. That is so for a moment after a member came or left."
        )
        blocks.append(Note("twice", words, "warn"))
    for place, words in enumerate(differing_subscriptions(found)):
        blocks.append(Note(f"differs{place}", words, "warn"))
    blocks.append(table_of(queues, _QUEUES, view.query, alone=False))
    for place, one in enumerate(found if wants_stacks else ()):
        blocks.append(Text(f"stack{place}", f"Stacks of {one.client_id}", one.stack or "It tells none."))
    actions = []
    if view.may(Role.operator):
        actions.append(PageLink("Show stacks", f"/groups/{name}/members", {"stacks": "1"}))
    return WebPage(f"Members of {name}", blocks, view.data.snapshot.problems, actions, tabs(name, "members"))


def differing_subscriptions(members: Sequence[MemberState]) -> list[str]:
    """Return a sentence for each topic that some members subscribe to otherwise than the others, or not at all.

    Brokers share the queues out among all members, and what a member did not subscribe to is lost to the group.
    """
    telling = [one for one in members if one.subscriptions]
    told = []
    for topic in sorted(
        {topic for one in telling for topic in one.subscriptions if not topic.startswith(RETRY_PREFIX)}
    ):
        forms: dict[str, list[str]] = {}
        for one in telling:
            form = one.subscriptions.get(topic)
            forms.setdefault("not at all" if form is None else f"with {form}", []).append(one.client_id)
        if len(forms) > 1:
            words = "; ".join(f"{form}: {several_words(who, 3)}" for form, who in sorted(forms.items()))
            told.append(f"Members subscribe to {topic} differently, so messages are missed. {words}.")
    return told


_MEMBERS: Listing[MemberState] = Listing(
    "members",
    "Members",
    [
        Column("client", "Client", lambda one: Mono(one.client_id)),
        Column("address", "Address", lambda one: Mono(one.address)),
        Column("language", "Language", lambda one: one.language),
        Column("version", "Version", lambda one: version_text(one.version)),
        Column("queues", "Queues", lambda one: len(one.queues), right=True),
        Column(
            "waiting", "Received, not processed", lambda one: sum(queue.waiting for queue in one.queues), right=True
        ),
        Column(
            "problem",
            "Tells about itself",
            lambda one: Badge(one.problem, "warn") if one.problem else Badge("everything", "good"),
        ),
    ],
    "No member is connected.",
)
_QUEUES: Listing[tuple[str, MemberQueue]] = Listing(
    "queues",
    "Queues and who has them",
    [
        Column("topic", "Topic", lambda row: topic_link(row[1].topic), lambda row: row[1].topic),
        Column("broker", "Broker", lambda row: broker_link(row[1].broker), lambda row: row[1].broker),
        Column("queue", "Queue", lambda row: row[1].queue_id, lambda row: row[1].queue_id, right=True),
        Column("owner", "Member", lambda row: Mono(row[0]), lambda row: row[0]),
        Column("offset", "Offset", lambda row: row[1].offset, lambda row: row[1].offset, right=True),
        Column(
            "waiting", "Not processed", lambda row: row[1].waiting, lambda row: row[1].waiting, right=True, falls=True
        ),
        Column("pull", "Last pull", lambda row: Time(row[1].last_pull_ms), lambda row: row[1].last_pull_ms),
        Column(
            "consume", "Last processed", lambda row: Time(row[1].last_consume_ms), lambda row: row[1].last_consume_ms
        ),
    ],
    "No member tells of queues. Only push consumers do.",
    text=lambda row: f"{row[1].topic} {row[1].broker} {row[0]}",
    filter_label="Topic, broker or member contains",
    sort="topic",
)


@dataclass(slots=True)
class _Client:
    """One connected client with the groups that it consumes and produces for."""

    client_id: str
    address: str
    language: str
    version: str
    consumes: list[str]
    produces: list[str]


@page("/clients", title="Clients", menu="Clients")
async def clients(view: PageView) -> WebPage:
    snapshot = view.data.snapshot
    found: dict[tuple[str, str], _Client] = {}

    def client(client_id: str, address: str, language: str, version: int) -> _Client:
        host = address.rpartition(":")[0] or address
        made = _Client(client_id, host.removeprefix("/"), language, version_name(version), [], [])
        return found.setdefault((client_id, made.address), made)

    for group, numbers in snapshot.group_numbers.items():
        for one in numbers.clients:
            client(one.client_id, one.address, one.language, one.version).consumes.append(group)
    producing = await list_producers(view.admin)
    for producer in producing.producers:
        client(producer.client_id, producer.address, producer.language, producer.version).produces.append(
            producer.group
        )
    version, versions = view.word("version"), sorted({f"{one.language} {one.version}" for one in found.values()})
    chosen = [one for one in found.values() if version in ("", f"{one.language} {one.version}")]
    choice = Choice("version", "Version", version, [("", "every version"), *((one, one) for one in versions)], "select")
    return WebPage("Clients", [table_of(chosen, _clients(choice), view.query)], producing.problems,
                as_of_ms=snapshot.at_ms, refresh_s=10)  # fmt: skip


def _groups(names: Sequence[str]) -> Cell:
    shown: list[Cell] = [group_link(name) for name in names[:_SHOWN_GROUPS]]
    if len(names) > _SHOWN_GROUPS:
        shown.append(f"and {len(names) - _SHOWN_GROUPS} more")
    return several(shown)


def _clients(choice: Choice) -> Listing[_Client]:
    return Listing(
        "clients",
        "Connected clients",
        [
            Column("client", "Client", lambda one: Mono(one.client_id), lambda one: one.client_id),
            Column("address", "Address", lambda one: Mono(one.address), lambda one: one.address),
            Column("language", "Language", lambda one: one.language, lambda one: one.language),
            Column("version", "Version", lambda one: version_text(one.version), lambda one: one.version),
            Column("consumes", "Consumes for", lambda one: _groups(one.consumes), lambda one: len(one.consumes)),
            Column("produces", "Produces for", lambda one: ", ".join(one.produces[:_SHOWN_GROUPS]),
                   lambda one: len(one.produces)),
        ],
        "No client is connected. Producers that only send now and then are not always listed.",
        text=lambda one: f"{one.client_id} {one.address} {' '.join(one.consumes)} {' '.join(one.produces)}",
        filter_label="Client, address or group contains",
        sort="client",
        filters=[choice],
    )  # fmt: skip
