"""Turns HTTP requests into calls of pages and actions, and their results into HTML or JSON."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from aerobee.dashboard import pages as _pages  # noqa: F401 - it fills the tables of the registry
from aerobee.dashboard.asking import TITLES, is_api, may_be_mended, path_of, status_of_error, until_left, way_back
from aerobee.dashboard.auditing import AuditTrail
from aerobee.dashboard.blocks import Note, PageLink, WebPage
from aerobee.dashboard.callers import Callers, WebCaller, WrongRequestError, collected, given_words, lasts
from aerobee.dashboard.doorway import App, Doorway, TooLargeError
from aerobee.dashboard.gate import Gate
from aerobee.dashboard.options import DashboardOptions, Mode
from aerobee.dashboard.pages.words import several_words
from aerobee.dashboard.registry import (
    ACTIONS,
    PAGES,
    RAWS,
    SECTIONS,
    ActionOutcome,
    ActionPlan,
    FormField,
    PageEntry,
    PageView,
    RawEntry,
    WebAction,
    menu_entries,
)
from aerobee.dashboard.rendering import Renderer
from aerobee.dashboard.security import LoginThrottle, Origins, Person, Role
from aerobee.errors import AerobeeError, InvalidArgumentError, TransportError
from aerobee.runtime.seams import Clock, Entropy
from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.stdlog import get_log

T = TypeVar("T")

# A little more than the time in which a silent broker is found out.
_FIRST_S: Final = 4.0
_AGE_S: Final = 31_536_000
_log = get_log("dashboard")


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the page of an action shows: its form and plan, or its outcome."""

    view: PageView
    early: Sequence[FormField] = ()
    plan: ActionPlan | None = None
    outcome: ActionOutcome | None = None
    problem: str = ""
    status: int = 200
    filled: Mapping[str, str] = field(default_factory=dict)


class Web:
    """The application. `app` is what an ASGI server serves."""

    def __init__(
        self, options: DashboardOptions, gate: Gate, clock: Clock, entropy: Entropy, tasks: Tasks, is_loopback: bool
    ) -> None:
        self._options = options
        self._gate = gate
        self._clock = clock
        self._renderer = Renderer(options.root_path)
        origins = Origins(is_loopback, options.public_url)
        self.callers = Callers(options, gate, clock, entropy, origins)
        self._throttle = LoginThrottle()
        self._trail = AuditTrail()
        self._tasks = tasks
        starlette = Starlette(routes=self._routes(), exception_handlers={Exception: self._failed, 404: self._missing})
        self.app: App = Doorway(starlette, origins, options.root_path, is_open=gate.mode is Mode.open)

    def _routes(self) -> list[BaseRoute]:
        routes: list[BaseRoute] = [
            Mount("/static", _Static(directory=Path(__file__).parent / "static")),
            Route("/healthz", self._health),
            Route("/login", self._login_page),
            Route("/login", self._login, methods=["POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Route("/api/login", self._login, methods=["POST"]),
            Route("/api/logout", self._logout, methods=["POST"]),
            Route("/api/me", self._me),
        ]
        for raw in RAWS:
            routes.append(Route(raw.path, self._raw_endpoint(raw)))
        for entry in ACTIONS:
            for before in ("/api", ""):
                routes.append(Route(before + entry.path, self._action_page(entry), methods=["GET"]))
                routes.append(Route(before + entry.path, self._action_run(entry), methods=["POST"]))
        for page in PAGES:
            for before in ("/api", ""):
                path = before + page.path if page.path != "/" or not before else "/api"
                routes.append(Route(path, self._page_endpoint(page)))
        return routes

    # -- pages

    def _page_endpoint(self, entry: PageEntry) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            caller = self.callers.caller(request)
            if caller.person is None:
                return self._ask_to_log_in(request, caller)
            began_s = self._clock.monotonic()
            try:
                view = await self._view(request, caller.person)
            except AerobeeError as error:
                return self._error(request, caller, error)
            status = 200
            try:
                page = await until_left(request, entry.show(view))
            except AerobeeError as error:
                if entry.form is None or not may_be_mended(request, error):
                    return self._error(request, caller, error)
                status, why = status_of_error(error), Note("problem", self._words_of(error, view), "bad")
                page = WebPage(entry.title, [entry.form(view), why], view.data.snapshot.problems)
            if page is None:
                return Response(status_code=499)
            if is_api(request):
                response: Response = JSONResponse(page.to_json())
            else:
                html = self._renderer.html(
                    "page.html", **self._frame(request, caller, page.title), page=page,
                    here=self._options.root_path + self._address(request),
                    json_url=self._options.root_path + self._address(request, "/api"), now_ms=view.now_ms,
                )  # fmt: skip
                response = HTMLResponse(html, status)
            response.headers["server-timing"] = f"app;dur={(self._clock.monotonic() - began_s) * 1000:.1f}"
            return self._finish(request, caller, response)

        return endpoint

    def _raw_endpoint(self, entry: RawEntry) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            caller = self.callers.caller(request)
            if caller.person is None:
                return self._ask_to_log_in(request, caller)
            try:
                view = await self._view(request, caller.person)
                return self._finish(request, caller, await entry.show(view))
            except AerobeeError as error:
                return self._error(request, caller, error)

        return endpoint

    async def _view(
        self,
        request: Request,
        person: Person,
        words: Mapping[str, Sequence[str]] | None = None,
        *,
        changes: bool = False,
    ) -> PageView:
        many = {**collected(request.query_params.multi_items()), **(words or {})}
        data = self._gate.collector(person)
        await data.first(_FIRST_S)
        return PageView(
            request.path_params,
            lasts(many),
            many,
            person,
            self._gate.connection(person, changes=changes),
            data,
            self._clock,
            self._trail,
            self._tasks,
            person.role > Role.viewer or self._options.viewer_bodies,
            self._options.places,
            self._gate.in_thread,
            functools.partial(self.callers.is_over, request),
        )

    def _frame(self, request: Request, caller: WebCaller, title: str) -> dict[str, Any]:
        path = path_of(request)
        menu = [
            (
                one.path,
                one.menu,
                one.path == path or (one.path != "/" and path.startswith(f"{one.path}/")),
                SECTIONS.get(one.menu or "", ""),
            )
            for one in menu_entries()
        ]
        person = caller.person
        clusters = {one.cluster for one in self._gate.collector(person).snapshot.known} if person is not None else set()
        return {
            "title": title,
            "cluster": several_words(sorted(clusters), 2),
            "person": caller.person,
            "token": self.callers.token(caller.cookie),
            "menu": menu,
            "can_leave": self._gate.mode is not Mode.open,
        }

    def _address(self, request: Request, before: str = "") -> str:
        """Return the address of a request without the sub-path: quoted, with its query."""
        path, query = path_of(request), request.scope["query_string"].decode("latin-1")
        path = before + path if path != "/" or not before else before
        return self._renderer.path(path) + (f"?{query}" if query else "")

    def _finish(self, request: Request, caller: WebCaller, response: Response) -> Response:
        response.headers.setdefault("cache-control", "no-store")
        if caller.is_new:
            self.callers.set_cookie(request, response, caller.cookie)
        return response

    # -- errors

    def _error(self, request: Request, caller: WebCaller, error: AerobeeError) -> Response:
        status = status_of_error(error)
        words = error.message if caller.person is None else self._named(error, caller.person)
        return self._say(request, caller, status, TITLES.get(status, "It was refused"), words, error.hint or "")

    def _named(self, error: AerobeeError, person: Person) -> str:
        """Return the words of an error. Those of a server that does not answer begin with its name."""
        address = error.broker or ""
        if not isinstance(error, TransportError) or not address or address in error.message:
            return error.message
        known = self._gate.collector(person).snapshot.known
        names = [f"broker {one.name} at {address}" for one in known if one.address == address]
        return f"{names[0] if names else address}: {error.message}"

    def _say(
        self,
        request: Request,
        caller: WebCaller,
        status: int,
        title: str,
        words: str,
        hint: str = "",
        link: PageLink | None = None,
    ) -> Response:
        response: Response
        if is_api(request):
            told = {"error": words, "hint": hint} if hint else {"error": words}
            response = JSONResponse(told, status)
        else:
            frame = self._frame(request, caller, title)
            html = self._renderer.html("error.html", **frame, words=words, hint=hint, link=link)
            response = HTMLResponse(html, status)
        return self._finish(request, caller, response)

    async def _failed(self, request: Request, error: Exception) -> Response:
        if isinstance(error, TooLargeError | TimeoutError):
            raise error
        _log.error("a page could not be made", path=path_of(request), exc_info=error)
        caller = self.callers.caller(request)
        return self._say(request, caller, 500, "A mistake of the dashboard", "The log of the dashboard tells more.")

    async def _missing(self, request: Request, error: Exception) -> Response:
        caller = self.callers.caller(request)
        status = error.status_code if isinstance(error, HTTPException) else 404
        return self._say(request, caller, status, "There is no such page", f"Nothing is at {path_of(request)}.")

    def _ask_to_log_in(self, request: Request, caller: WebCaller) -> Response:
        # What was sent with a change is not asked for.
        back = self._address(request) if request.method == "GET" else self._renderer.path(path_of(request))
        query = {} if back == "/" else {"next": back}
        if not is_api(request) and request.method == "GET":
            return self._finish(request, caller, RedirectResponse(self._renderer.url("/login", query), 303))
        words = "Nobody is logged in, or the session is over."
        if request.method != "GET":
            words += " Nothing was changed."
        return self._say(request, caller, 401, "Log in first", words, link=PageLink("Log in", "/login", query))

    # -- changes

    def _action_page(self, entry: WebAction) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            caller = self.callers.caller(request)
            if caller.person is None:
                return self._ask_to_log_in(request, caller)
            if caller.person.role < entry.role:
                return self._not_allowed(request, caller, entry)
            try:
                view = await self._view(request, caller.person)
            except AerobeeError as error:
                return self._error(request, caller, error)
            try:
                early, plan = await self._planned(entry, view)
                filled = await entry.prefill(view)
            except AerobeeError as error:
                early = [one for one in entry.fields(view) if not one.is_late]
                if not early or not may_be_mended(request, error):
                    return self._error(request, caller, error)
                # What was typed is mended, and not typed again.
                shown = _Shown(view, early, problem=self._words_of(error, view), status=status_of_error(error))
                return self._show_action(request, caller, entry, shown)
            return self._show_action(request, caller, entry, _Shown(view, early, plan, filled=filled))

        return endpoint

    async def _planned(self, entry: WebAction, view: PageView) -> tuple[list[FormField], ActionPlan | None]:
        """Return the fields of an action that come before its plan, and the plan if they are filled."""
        early = [one for one in entry.fields(view) if not one.is_late]
        is_asked = not early or "plan" in view.query
        if not is_asked or any(one.required and not view.word(one.name) for one in early):
            return early, None
        return early, await entry.plan(view)

    def _show_action(self, request: Request, caller: WebCaller, entry: WebAction, shown: _Shown) -> Response:
        view, plan, outcome = shown.view, shown.plan, shown.outcome
        named = "" if entry.named is None else entry.named(view)
        if is_api(request):
            told = _told(entry, plan, outcome, shown.problem, named)
            told["problems"] = list(view.data.snapshot.problems)
            return self._finish(request, caller, JSONResponse(told, shown.status))
        asked = bool(shown.early) and "plan" in view.query
        late = [
            one.choice(shown.filled.get(one.name) or _value(one, view, asked=False))
            for one in entry.fields(view)
            if one.is_late
        ]
        html = self._renderer.html(
            "action.html",
            **self._frame(request, caller, ": ".join((entry.title, *view.path.values()))),
            action=entry,
            problems=view.data.snapshot.problems,
            plan=plan,
            outcome=outcome,
            early=[one.choice(_value(one, view, asked)) for one in shown.early],
            late=late,
            problem=shown.problem,
            kept=[(one.name, value) for one in shown.early for value in view.many.get(one.name, ())],
            named=named,
            back=entry.back(view),
            here=self._renderer.url(entry.back(view)),
            now_ms=view.now_ms,
        )
        return self._finish(request, caller, HTMLResponse(html, shown.status))

    def _not_allowed(self, request: Request, caller: WebCaller, entry: WebAction) -> Response:
        words = f"This needs the role {entry.role.name}."
        if caller.person is not None:
            words += f" {caller.person.name} has the role {caller.person.role.name}."
        return self._say(request, caller, 403, "Not allowed", words)

    def _action_run(self, entry: WebAction) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            caller = self.callers.caller(request)
            if caller.person is None:
                return self._ask_to_log_in(request, caller)
            try:
                words = await given_words(request)
            except WrongRequestError as error:
                return self._say(request, caller, 400, "The request cannot be read", str(error))
            token = request.headers.get("x-csrf-token", "") or lasts(words).get("token", "")
            refusal = self.callers.refusal(request, "" if caller.is_new else caller.cookie, token)
            if refusal:
                link = PageLink("Open the form again", path_of(request))
                return self._say(
                    request, caller, 403, "The change is not taken", f"{refusal} Nothing was changed.", link=link
                )
            if caller.person.role < entry.role:
                self._note(request, caller.person, entry, {}, "refused", "the role does not allow it")
                return self._not_allowed(request, caller, entry)
            return await self._run(request, caller, entry, words)

        return endpoint

    async def _run(
        self, request: Request, caller: WebCaller, entry: WebAction, words: Mapping[str, Sequence[str]]
    ) -> Response:
        assert caller.person is not None
        view = await self._view(request, caller.person, {"plan": ["1"], **words}, changes=True)
        missing = [one.label for one in entry.fields(view) if one.required and not view.query.get(one.name, "").strip()]
        named = "" if entry.named is None else entry.named(view)
        given = _shown(entry, view)
        try:
            if missing:
                raise InvalidArgumentError(f"{missing[0]} is missing")
            if named and view.query.get("typed", "").strip() != named:
                raise InvalidArgumentError(f"type {named} to confirm; nothing was changed")
            outcome = await entry.run(view)
        except AerobeeError as error:
            self._note(request, caller.person, entry, given, "failed", str(error))
            return await self._show_failure(request, caller, entry, view, error)
        except BaseException as error:
            # A part of it may have been done.
            self._note(request, caller.person, entry, given, "failed", f"it broke off: {error!r}")
            raise
        view.data.renew()
        self._note(
            request, caller.person, entry, given, "done" if outcome.ok else "partly", " ".join(outcome.sentences)
        )
        return self._show_action(
            request, caller, entry, _Shown(view, outcome=outcome, status=200 if outcome.ok else 409)
        )

    async def _show_failure(
        self, request: Request, caller: WebCaller, entry: WebAction, view: PageView, error: AerobeeError
    ) -> Response:
        """Show the form again with the reason why nothing was done, or not everything."""
        problem = self._words_of(error, view)
        try:
            early, plan = await self._planned(entry, view)
        except AerobeeError:
            early, plan = [one for one in entry.fields(view) if not one.is_late], None
        return self._show_action(
            request, caller, entry, _Shown(view, early, plan, problem=problem, status=status_of_error(error))
        )

    def _words_of(self, error: AerobeeError, view: PageView) -> str:
        words = self._named(error, view.person)
        return f"{words}{'' if words.endswith('.') else '.'} {error.hint}" if error.hint else words

    def _note(
        self, request: Request, person: Person, entry: WebAction, given: Mapping[str, str], result: str, words: str
    ) -> None:
        self._trail.add(
            self._clock.now_ms(), person.name, self.callers.address(request), entry.title, path=path_of(request),
            given=given, result=result, words=words,
        )  # fmt: skip

    # -- logins

    async def _login_page(self, request: Request) -> Response:
        caller = self.callers.caller(request)
        if caller.person is not None:
            # Somebody who logged in in another window, and loads this one again.
            return RedirectResponse(self._options.root_path + way_back(request.query_params.get("next", "")), 303)
        return self._show_login(request, caller, "", 200)

    def _show_login(self, request: Request, caller: WebCaller, problem: str, status: int, back: str = "") -> Response:
        if is_api(request):
            return self._finish(request, caller, JSONResponse({"error": problem}, status))
        html = self._renderer.html(
            "login.html", **self._frame(request, caller, "Log in"), mode=self._gate.mode.value, problem=problem,
            next=back or request.query_params.get("next", ""),
        )  # fmt: skip
        return self._finish(request, caller, HTMLResponse(html, status))

    async def _login(self, request: Request) -> Response:
        caller = self.callers.caller(request)
        try:
            words = lasts(await given_words(request))
        except WrongRequestError as error:
            return self._say(request, caller, 400, "The request cannot be read", str(error))
        token = request.headers.get("x-csrf-token", "") or words.get("token", "")
        refusal = self.callers.refusal(request, "" if caller.is_new else caller.cookie, token)
        if refusal:
            return self._show_login(request, caller, refusal, 403)
        name, secret, back = words.get("name", "").strip()[:200], words.get("secret", ""), words.get("next", "")
        address, now_s = self.callers.address(request), self._clock.monotonic()
        wait_s = self._throttle.wait_s(name, address, now_s)
        if wait_s > 0:
            response = self._show_login(request, caller, f"Too many tries. Wait {wait_s:.0f} s.", 429, back)
            response.headers["retry-after"] = str(int(wait_s) + 1)
            return response
        try:
            person = await self._gate.check(name, secret)
        except AerobeeError as error:
            return self._show_login(request, caller, f"Nobody can tell now who you are: {error.message}", 503, back)
        self._trail.add(
            self._clock.now_ms(), name, address, "Log in", result="done" if person is not None else "refused"
        )
        if person is None:
            return self._show_login(request, caller, "The name or the secret is wrong.", 401, back)
        self._throttle.forget(name, address)
        # The cookie from before the login is worth nothing any more.
        cookie = self.callers.new_key()
        self.callers.sessions.begin(cookie, person, now_s)
        response = (
            JSONResponse(self._who(person, cookie))
            if is_api(request)
            else RedirectResponse(self._options.root_path + way_back(back), 303)
        )
        self.callers.set_cookie(request, response, cookie)
        return response

    async def _logout(self, request: Request) -> Response:
        caller = self.callers.caller(request)
        try:
            words = lasts(await given_words(request))
        except WrongRequestError as error:
            return self._say(request, caller, 400, "The request cannot be read", str(error))
        token = request.headers.get("x-csrf-token", "") or words.get("token", "")
        refusal = self.callers.refusal(request, "" if caller.is_new else caller.cookie, token)
        if refusal:
            return self._say(request, caller, 403, "The change is not taken", refusal)
        self.callers.sessions.end(caller.cookie)
        response: Response = (
            JSONResponse({"ok": True}) if is_api(request) else RedirectResponse(self._renderer.url("/login"), 303)
        )
        self.callers.set_cookie(request, response, self.callers.new_key())
        return response

    def _who(self, person: Person | None, cookie: str) -> dict[str, Any]:
        told: dict[str, Any] = {"mode": self._gate.mode.value, "token": self.callers.token(cookie)}
        if person is not None:
            told |= {"name": person.name, "role": person.role.name}
        return told

    async def _me(self, request: Request) -> Response:
        """Tell who is logged in, and the token for changes. Programs that log in ask this first."""
        caller = self.callers.caller(request)
        return self._finish(request, caller, JSONResponse(self._who(caller.person, caller.cookie)))

    async def _health(self, request: Request) -> Response:
        return Response("ok\n", media_type="text/plain", headers={"cache-control": "no-store"})


class _Static(StaticFiles):
    """Files whose addresses change with their contents."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = f"public, max-age={_AGE_S}, immutable"
        return response


def _value(one: FormField, view: PageView, asked: bool) -> str:
    """Return what a field shows: what was given, or before anything was given its default."""
    if one.kind == "area" and not one.is_late:
        return "\n".join(view.many.get(one.name, ()))
    return view.query.get(one.name, "" if asked else one.default)


def _shown(entry: WebAction, view: PageView) -> dict[str, str]:
    """Return the fields of a change for the audit trail, without secrets."""
    return {
        **view.path,
        **{
            one.name: ",".join(view.many.get(one.name, ()))
            for one in entry.fields(view)
            if not one.secret and one.kind != "area"
        },
    }


def _told(
    entry: WebAction, plan: ActionPlan | None, outcome: ActionOutcome | None, problem: str, named: str
) -> dict[str, Any]:
    told: dict[str, Any] = {"title": entry.title}
    if problem:
        told["error"] = problem
    if plan is not None and outcome is None:
        told |= {"plan": list(plan.sentences), "warnings": list(plan.warnings), "problem": plan.problem, "type": named}
        told |= {one.name: one.to_json() for one in plan.blocks}
    if outcome is not None:
        told |= {"ok": outcome.ok, "done": list(outcome.sentences)}
        told |= {one.name: one.to_json() for one in outcome.blocks}
        if outcome.secret:
            told["secret"] = outcome.secret
    return told
