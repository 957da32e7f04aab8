"""Pages and actions: what they are called with, and the tables that `web.py` serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from starlette.responses import Response

from aerobee.admin.connection import AdminConnection
from aerobee.dashboard.auditing import AuditTrail
from aerobee.dashboard.blocks import Block, Choice, SearchForm, WebPage
from aerobee.dashboard.collector import Collector
from aerobee.dashboard.options import LocalPlaces
from aerobee.dashboard.security import Person, Role
from aerobee.runtime.seams import Clock
from aerobee.runtime.tasks import Tasks

T = TypeVar("T")
InThread = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class PageView:
    """One request as a page sees it. `path` are the words of its path, `query` the state in its address."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    # Every value of a name that was given several times.
    many: Mapping[str, Sequence[str]]
    person: Person
    admin: AdminConnection
    data: Collector
    clock: Clock
    trail: AuditTrail
    # For work that must end in its own time, whatever becomes of the request.
    tasks: Tasks
    # Whether this person may read bodies and properties of messages.
    shows_bodies: bool = True
    places: LocalPlaces = field(default_factory=LocalPlaces)
    # Calls a function that reads files in another thread.
    in_thread: InThread | None = None
    # Whether the session has ended since the request came: what lasts long asks again.
    is_over: Callable[[], bool] = lambda: False

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    @property
    def silent(self) -> dict[str, str]:
        """Why masters do not answer, by the names of their brokers, as it was when they were asked last."""
        snapshot = self.data.snapshot
        return {
            one.name: snapshot.silent[one.address]
            for one in snapshot.known
            if one.broker_id == 0 and one.address in snapshot.silent
        }

    def problems_with(self, unreached: Mapping[str, str]) -> list[str]:
        """Return what is wrong with the cluster, and a sentence for each broker that did not answer to a page."""
        known = self.silent
        told = [f"broker {name} is silent: {why}" for name, why in sorted(unreached.items()) if name not in known]
        return [*self.data.snapshot.problems, *told]

    def word(self, name: str, default: str = "") -> str:
        """Return a value of the query without blanks around it."""
        return self.query.get(name, default).strip()

    def may(self, role: Role) -> bool:
        return self.person.role >= role

    @property
    def may_see_files(self) -> bool:
        """Whether this person may see what the files of this machine tell. The rights of the cluster do not reach
        there, so a user of the cluster must be one who may do everything."""
        return self.may(Role.admin) or self.person.secret is None

    async def read(self, work: Callable[..., T], *given: Any) -> T:
        """Return the result of a function that reads files. It runs in another thread."""
        assert self.in_thread is not None
        result: T = await self.in_thread(work, *given)
        return result


ShowPage = Callable[[PageView], Awaitable[WebPage]]
ShowRaw = Callable[[PageView], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class PageEntry:
    """A page and where it is. `menu` is its word in the menu, None where it has none."""

    path: str
    title: str
    menu: str | None
    show: ShowPage
    # The form with what was typed. It is shown again above the reason why nothing can be shown.
    form: Callable[[PageView], SearchForm] | None = None


@dataclass(frozen=True, slots=True)
class RawEntry:
    """What is no page: a download, or a stream."""

    path: str
    show: ShowRaw


@dataclass(frozen=True, slots=True)
class ActionPlan:
    """What an action will do. With `problem` it cannot be done, and the sentence says why."""

    sentences: Sequence[str]
    blocks: Sequence[Block] = ()
    warnings: Sequence[str] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """What an action did. `ok` is False if any part of it failed."""

    sentences: Sequence[str]
    blocks: Sequence[Block] = ()
    ok: bool = True
    # Where to look next: path and text.
    next: tuple[str, str] | None = None
    # What is shown once and kept nowhere, such as a new secret.
    secret: str = ""


@dataclass(frozen=True, slots=True)
class FormField:
    """One field of an action. A `late` one comes with the button, after the plan: it is too long for an address.
    `secret` fields are passwords: they never come back in a page, an address or the trail, and so they are late, too.
    """

    name: str
    label: str
    kind: str = "text"
    required: bool = False
    default: str = ""
    options: Sequence[tuple[str, str]] = ()
    help: str = ""
    late: bool = False
    secret: bool = False
    suggested: Sequence[str] = ()

    @property
    def is_late(self) -> bool:
        return self.late or self.secret

    def choice(self, value: str) -> Choice:
        return Choice(self.name, self.label, "" if self.secret else value, self.options, self.kind, self.help,
                      self.suggested)  # fmt: skip


async def nothing_filled(view: PageView) -> dict[str, str]:
    """Return no values: the fields of most actions begin with their defaults."""
    return {}


PlanAction = Callable[[PageView], Awaitable[ActionPlan]]
RunAction = Callable[[PageView], Awaitable[ActionOutcome]]


@dataclass(frozen=True, slots=True)
class WebAction:
    """A change. With `named`, the person types this name before it is done: it cannot be taken back."""

    path: str
    title: str
    role: Role
    button: str
    plan: PlanAction
    run: RunAction
    fields: Callable[[PageView], Sequence[FormField]] = field(default=lambda view: ())
    named: Callable[[PageView], str] | None = None
    # The page that one comes from.
    back: Callable[[PageView], str] = field(default=lambda view: "/")
    about: str = ""
    # The values that late fields begin with.
    prefill: Callable[[PageView], Awaitable[Mapping[str, str]]] = nothing_filled


# The order of the menu. What is not named here comes at the end.
MENU: Final = (
    "Overview", "Topics", "Messages", "Tail", "Groups", "Dead letters", "Waiting", "Clients", "Brokers", "Replicas",
    "Spark", "Quotas", "Users", "Audit",
)  # fmt: skip

# The words at which a part of the menu begins, and its heading.
SECTIONS: Final = {"Overview": "Messages", "Clients": "Cluster", "Users": "Access"}

PAGES: Final[list[PageEntry]] = []
ACTIONS: Final[list[WebAction]] = []
RAWS: Final[list[RawEntry]] = []


def page(
    path: str, *, title: str, menu: str | None = None, form: Callable[[PageView], SearchForm] | None = None
) -> Callable[[ShowPage], ShowPage]:
    """Give a page its path."""

    def add(show: ShowPage) -> ShowPage:
        PAGES.append(PageEntry(path, title, menu, show, form))
        return show

    return add


def raw(path: str) -> Callable[[ShowRaw], ShowRaw]:
    """Give a download or a stream its path."""

    def add(show: ShowRaw) -> ShowRaw:
        RAWS.append(RawEntry(path, show))
        return show

    return add


def action(path: str, plan: PlanAction, **words: Any) -> Callable[[RunAction], RunAction]:
    """Give a change its path and its plan. The function that is decorated runs it."""

    def add(run: RunAction) -> RunAction:
        ACTIONS.append(WebAction(path=path, plan=plan, run=run, **words))
        return run

    return add


def menu_entries() -> list[PageEntry]:
    """Return the pages of the menu in its order."""
    shown = [one for one in PAGES if one.menu is not None]
    return sorted(shown, key=lambda one: MENU.index(one.menu) if one.menu in MENU else len(MENU))
