"""Users of the cluster, their rights, and why somebody may do something. Only a new secret is shown, once."""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.access.policies import Action
from aerobee.admin.acls import ALLOW, CUSTOM, DEFAULT, DENY, Explained, Right, explain, grant, list_rights, revoke
from aerobee.admin.everyserver import Changed, ServerAnswer, ServerOutcome
from aerobee.admin.users import (
    DISABLED,
    ENABLED,
    NORMAL,
    SUPER,
    UserChanges,
    UserView,
    create_user,
    delete_user,
    list_users,
    update_user,
)
from aerobee.dashboard.blocks import Badge, Block, Choice, Mono, Note, PageLink, SearchForm, Table, WebPage
from aerobee.dashboard.pages.words import several_words
from aerobee.dashboard.paging import Column, Listing, table_of
from aerobee.dashboard.registry import ActionOutcome, ActionPlan, FormField, PageView, action, page
from aerobee.dashboard.security import Role
from aerobee.errors import AerobeeError, BrokerError, InvalidArgumentError
from aerobee.errors.codes import NoPermissionError
from aerobee.runtime.entropy import SystemEntropy

_ACTIONS = [one.value for one in Action if one is not Action.ALL]
_TYPES = [(NORMAL, "Normal: what the rights say"), (SUPER, "Super: everything")]
_STATUS = [(ENABLED, "enabled"), (DISABLED, "disabled")]
_STATUS_BADGES = {ENABLED: ("enabled", "good"), DISABLED: ("disabled", "bad")}
_TONES = {
    ServerOutcome.done.value: "good",
    ServerOutcome.follows.value: "calm",
    ServerOutcome.unsupported.value: "calm",
}
_SECRET_BYTES = 24


def _tabs(here: str) -> list[tuple[PageLink, bool]]:
    return [
        (PageLink("Users", "/users"), here == "users"),
        (PageLink("Rights", "/users/rights"), here == "rights"),
        (PageLink("Why", "/users/why"), here == "why"),
    ]


# -- users


@page("/users", title="Users", menu="Users")
async def users(view: PageView) -> WebPage:
    problems: Sequence[str] = ()
    found: Sequence[UserView] = ()
    blocks: list[Block] = []
    try:
        listing = await list_users(view.admin)
        found, problems = listing.users, listing.problems
    except (InvalidArgumentError, BrokerError) as error:
        blocks.append(_no_users(error))
    may = view.may(Role.admin)
    actions = [PageLink("Create a user", "/users/create")] if may else []
    table = table_of(found, _users(may, {server for one in found for server in one.servers}), view.query)
    return WebPage("Users", [*blocks, table], problems, actions, _tabs("users"))


def _no_users(error: AerobeeError) -> Note:
    """Return why no users are known. Raise the error again where it says that the person may not see them."""
    if isinstance(error, NoPermissionError):
        raise error
    if isinstance(error, BrokerError):
        words = f"The brokers do not tell users: {error.message}. Apache's answer so where authentication is off."
        return Note("none", words, "warn")
    return Note("none", f"{error.message[0].upper()}{error.message[1:]}. {error.hint or ''}")


def _rights_link(one: UserView) -> PageLink:
    return PageLink(one.name, "/users/rights", {"user": one.name})


def _known_to(servers: Sequence[str], every: set[str], most: int) -> str:
    """Return which servers know something, in few words where all of them do."""
    return f"all {len(every)} servers" if every <= set(servers) else several_words(servers, most)


def _users(may: bool, every: set[str]) -> Listing[UserView]:
    columns: list[Column[UserView]] = [
        Column("user", "User", _rights_link, lambda one: one.name),
        Column("type", "Type", lambda one: Badge(one.type, "warn" if one.type == SUPER else "calm"),
               lambda one: one.type),
        Column("status", "Status", lambda one: Badge(*_STATUS_BADGES.get(one.status, (one.status, "bad"))),
               lambda one: one.status),
        Column("servers", "Known to", lambda one: _known_to(one.servers, every, 4)),
    ]  # fmt: skip
    if may:
        columns.append(Column("change", "", lambda one: PageLink("Change", f"/users/{one.name}/update")))
        columns.append(Column("delete", "", lambda one: PageLink("Delete", f"/users/{one.name}/delete")))
    return Listing(
        "users", "Users of the cluster", columns, "There are no users.", text=lambda one: one.name, sort="user"
    )


def answers_table(changed: Changed) -> Table:
    """Return what every server answered to a change."""
    listing: Listing[ServerAnswer] = Listing(
        "answers",
        "Each server",
        [
            Column("server", "Server", lambda one: f"{one.server.role} {one.server.address}"),
            Column("outcome", "Result", lambda one: Badge(one.outcome, _TONES.get(one.outcome, "bad"))),
            Column("words", "Words", lambda one: one.words),
        ],
        "No server was asked.",
    )
    return table_of(changed.answers, listing, {"size": "500"}, alone=False)


def _outcome(changed: Changed, sentence: str, *, secret: str = "", back: str = "/users") -> ActionOutcome:
    """Return what became of a change. Raise InvalidArgumentError if every server refused it alike."""
    ok = changed.is_complete
    refusals = {one.words if one.outcome == ServerOutcome.refused.value else "" for one in changed.answers}
    if len(refusals) == 1 and "" not in refusals:
        raise InvalidArgumentError(f"every server refused it: {refusals.pop()}")
    words = sentence if ok else "Not every server took the change: the table says which. Repeat it, or mend the server."
    return ActionOutcome([words], [answers_table(changed)], ok, (back, "Go on"), secret if ok else "")


def _create_fields(view: PageView) -> Sequence[FormField]:
    return [
        FormField("name", "Name", required=True),
        FormField("type", "Type", "select", default=NORMAL, options=_TYPES),
        FormField("secret", "Secret key", "password", secret=True, help="Empty makes one, which is shown once."),
    ]


async def _plan_create(view: PageView) -> ActionPlan:
    kind = view.word("type", NORMAL) or NORMAL
    warnings = ["A Super user may do everything, and make other users."] if kind == SUPER else []
    words = f"The user {view.word('name')} ({kind}) is made on every name server and broker."
    return ActionPlan(
        [words, "A Normal user may do nothing until rights are granted."][: 1 if warnings else 2], (), warnings
    )


@action(
    "/users/create", _plan_create, title="Create a user", role=Role.admin, button="Create the user",
    fields=_create_fields, back=lambda view: "/users",
)  # fmt: skip
async def create(view: PageView) -> ActionOutcome:
    name, given = view.word("name"), view.query.get("secret", "")
    secret = given or SystemEntropy().token(_SECRET_BYTES).hex()
    changed = await create_user(view.admin, name, UserChanges(secret, view.word("type") or NORMAL, ENABLED))
    shown = "" if given else secret
    return _outcome(changed, f"The user {name} can log in.", secret=shown, back="/users")


def _update_fields(view: PageView) -> Sequence[FormField]:
    as_it_is = [("", "as it is")]
    return [
        FormField("type", "Type", "select", options=[*as_it_is, *_TYPES]),
        FormField("status", "Status", "select", options=[*as_it_is, *_STATUS]),
        FormField("secret", "New secret key", "password", secret=True, help="Empty keeps the present one."),
    ]


def _of_oneself(view: PageView, name: str) -> list[str]:
    """Return a warning for somebody who is about to change the user that their own requests are signed as."""
    if view.person.secret is None or view.person.name != name:
        return []
    return ["You are logged in as this user. With another secret key, or without the user, log in again."]


def _changes(view: PageView) -> UserChanges:
    return UserChanges(view.query.get("secret") or None, view.word("type") or None, view.word("status") or None)


async def _plan_update(view: PageView) -> ActionPlan:
    name, change = view.path["name"], _changes(view)
    words = [f"type {change.type}"] if change.type else []
    words += [f"status {change.status}"] if change.status else []
    told = f"gets {' and '.join(words)}" if words else "keeps type and status, and gets the secret key below"
    warnings = [f"Every request of {name} is refused from then on."] if change.status == DISABLED else []
    warnings += _of_oneself(view, name)
    return ActionPlan([f"The user {name} {told}, on every name server and broker."], (), warnings)


@action(
    "/users/{name}/update", _plan_update, title="Change a user", role=Role.admin, button="Change the user",
    fields=_update_fields, back=lambda view: "/users",
)  # fmt: skip
async def update(view: PageView) -> ActionOutcome:
    name = view.path["name"]
    return _outcome(await update_user(view.admin, name, _changes(view)), f"The user {name} is changed.")


async def _plan_delete(view: PageView) -> ActionPlan:
    name = view.path["name"]
    rights = [one for one in (await list_rights(view.admin, name)).rights if one.user == name]
    return ActionPlan(
        [f"The user {name} is deleted on every server, with {len(rights)} rights.", "Its next request is refused."],
        (),
        _of_oneself(view, name),
    )


@action(
    "/users/{name}/delete", _plan_delete, title="Delete a user", role=Role.admin, button="Delete the user",
    named=lambda view: view.path["name"], back=lambda view: "/users",
)  # fmt: skip
async def delete(view: PageView) -> ActionOutcome:
    name = view.path["name"]
    return _outcome(await delete_user(view.admin, name), f"The user {name} is deleted.")


# -- rights


@page("/users/rights", title="Rights")
async def rights(view: PageView) -> WebPage:
    user, resource = view.word("user"), view.word("resource")
    problems: Sequence[str] = ()
    found: Sequence[Right] = ()
    blocks: list[Block] = []
    try:
        listing = await list_rights(view.admin, user, resource)
        found, problems = listing.rights, listing.problems
    except (InvalidArgumentError, BrokerError) as error:
        blocks.append(_no_users(error))
    may = view.may(Role.admin)
    every = {server for one in found for server in one.servers}
    filters = [
        Choice("user", "User contains", user, kind="search"),
        Choice("resource", "Resource contains", resource, kind="search"),
    ]
    actions = [PageLink("Grant a right", "/users/rights/grant", {"user": user} if user else {})] if may else []
    return WebPage(
        "Rights",
        [*blocks, table_of(found, _rights(may, filters, every), view.query)],
        problems,
        actions,
        _tabs("rights"),
    )


def _rights(may: bool, filters: Sequence[Choice], every: set[str]) -> Listing[Right]:
    columns: list[Column[Right]] = [
        Column("user", "User", lambda one: one.user, lambda one: one.user),
        Column("resource", "Resource", lambda one: Mono(one.resource), lambda one: one.resource),
        Column("decision", "Decision", lambda one: Badge(one.decision, "good" if one.decision == ALLOW else "bad"),
               lambda one: one.decision),
        Column("actions", "Actions", lambda one: ", ".join(one.actions)),
        Column("sources", "From", lambda one: ", ".join(one.sources) or "everywhere"),
        Column("policy", "Policy", lambda one: one.policy, lambda one: one.policy),
        Column("servers", "Known to", lambda one: _known_to(one.servers, every, 3)),
    ]  # fmt: skip
    if may:
        columns.append(
            Column("revoke", "", lambda one: PageLink("Revoke", "/users/rights/revoke", {
                "user": one.user, "resource": one.resource, "policy": one.policy, "plan": "1"}))
        )  # fmt: skip
    return Listing("rights", "Rights", columns, "No right is like that.", sort="user", filters=filters)


def _grant_fields(view: PageView) -> Sequence[FormField]:
    return [
        FormField("user", "User", required=True),
        FormField("resource", "Resource", required=True, help="Topic:orders, Topic:ord*, Group:billing, Cluster:* ..."),
        FormField(
            "actions", "Actions", required=True, help=f"Some of {', '.join(_ACTIONS)}, or All; separated by commas."
        ),
        FormField("decision", "Decision", "select", default=ALLOW, options=[(ALLOW, "allow"), (DENY, "deny")]),
        FormField("sources", "Only from", help="Addresses or networks, separated by commas. Empty: from everywhere."),
        FormField("policy", "Policy", "select", default=CUSTOM, options=[(CUSTOM, CUSTOM), (DEFAULT, DEFAULT)]),
    ]


def _listed(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",") if one.strip())


def _right(view: PageView) -> Right:
    return Right(
        view.word("user"), view.word("resource"), _listed(view.word("actions")), view.word("decision") or ALLOW,
        view.word("policy") or CUSTOM, _listed(view.word("sources")),
    )  # fmt: skip


async def _plan_grant(view: PageView) -> ActionPlan:
    one = _right(view)
    verb = "may" if one.decision == ALLOW else "may not"
    where = f" from {', '.join(one.sources)}" if one.sources else ""
    held = [
        right
        for right in (await list_rights(view.admin, one.user)).rights
        if right.user == one.user and right.resource == one.resource and right.policy == one.policy
    ]
    warnings = [f"It takes the place of: {right.decision} {', '.join(right.actions)}." for right in held]
    return ActionPlan(
        [f"{one.user} {verb} {', '.join(one.actions)} on {one.resource}{where}, on every server."], (), warnings
    )


@action(
    "/users/rights/grant", _plan_grant, title="Grant or deny a right", role=Role.admin, button="Grant it",
    fields=_grant_fields, back=lambda view: "/users/rights",
)  # fmt: skip
async def grant_it(view: PageView) -> ActionOutcome:
    one = _right(view)
    changed = await grant(view.admin, [one])
    return _outcome(changed, f"The right of {one.user} on {one.resource} is in force.", back="/users/rights")


def _revoke_fields(view: PageView) -> Sequence[FormField]:
    return [
        FormField("user", "User", required=True),
        FormField("resource", "Resource", help="Empty: every right of the user."),
        FormField("policy", "Policy", "select", default=CUSTOM, options=[(CUSTOM, CUSTOM), (DEFAULT, DEFAULT)]),
    ]


async def _plan_revoke(view: PageView) -> ActionPlan:
    user, resource = view.word("user"), view.word("resource")
    held = [
        one
        for one in (await list_rights(view.admin, user)).rights
        if one.user == user and resource in ("", one.resource) and one.policy == (view.word("policy") or CUSTOM)
    ]
    if not held:
        return ActionPlan([], problem=f"{user} has no such right.")
    return ActionPlan([f"{user} loses: {one.decision} {', '.join(one.actions)} on {one.resource}." for one in held])


@action(
    "/users/rights/revoke", _plan_revoke, title="Revoke a right", role=Role.admin, button="Revoke it",
    fields=_revoke_fields, back=lambda view: "/users/rights",
)  # fmt: skip
async def revoke_it(view: PageView) -> ActionOutcome:
    user, resource = view.word("user"), view.word("resource") or None
    changed = await revoke(view.admin, user, resource, policy=view.word("policy") or CUSTOM)
    return _outcome(changed, f"The right of {user} is gone.", back="/users/rights")


# -- why


def _question(view: PageView) -> SearchForm:
    fields = [
        Choice("user", "User", view.word("user")),
        Choice(
            "resource", "Resource", view.word("resource"), help="Topic:orders, Group:billing, Cluster:DefaultCluster"
        ),
        Choice("action", "Action", view.word("action") or _ACTIONS[0], [(one, one) for one in _ACTIONS], "select"),
        Choice("source", "From address", view.word("source"), help="Empty: any."),
    ]
    return SearchForm("search", "May somebody do something?", fields, "Ask")


@page("/users/why", title="Why", form=_question)
async def why(view: PageView) -> WebPage:
    names = ("user", "resource", "action", "source")
    user, resource, wanted, source = (view.word(name) for name in names)
    blocks: list[Block] = [_question(view)]
    problems: Sequence[str] = ()
    if user and resource:
        try:
            found = await explain(view.admin, user, resource, wanted or _ACTIONS[0], source=source)
            problems = found.problems
            blocks.append(table_of(found.verdicts, _VERDICTS, {}, alone=False))
        except BrokerError as error:
            blocks.append(_no_users(error))
    return WebPage("Why", blocks, problems, (), _tabs("why"))


_VERDICTS: Listing[Explained] = Listing(
    "verdicts",
    "Verdict",
    [
        Column("allowed", "May do it", lambda one: Badge("yes", "good") if one.allowed else Badge("no", "bad")),
        Column("rule", "Because of", lambda one: Mono(one.rule)),
        Column("asked", "Asked", lambda one: f"{one.action} on {one.resource}"),
        Column("servers", "On", lambda one: several_words(one.servers, 6)),
    ],
    "No server could be asked.",
)
