"""Questions that any of several servers can answer, where some hang, fail or have nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aerobee.errors import AerobeeError, NotConnectedError
from aerobee.model.route import BrokerData, QueueData, TopicRouteData
from aerobee.proxy import lookups
from aerobee.proxy.backend import Route
from aerobee.proxy.lookups import Lookups


class _Servers:
    """Servers by address: what each answers. None hangs."""

    def __init__(self, **answers: str | AerobeeError | None) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.cancelled: list[str] = []

    async def ask(self, address: str) -> str | None:
        self.asked.append(address)
        answer = self.answers[address]
        if answer is None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.append(address)
                raise
        if isinstance(answer, AerobeeError):
            raise answer
        return answer or None


def run(work: Callable[[Lookups], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(20):
            await work(Lookups(asyncio.get_running_loop().time))

    asyncio.run(main())


@pytest.fixture(autouse=True)
def sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "_NEXT_S", 0.02)


def test_the_next_server_is_asked_where_one_hangs_and_that_one_last_from_then_on() -> None:
    async def work(found: Lookups) -> None:
        servers = _Servers(a=None, b="here")
        assert await found.first(["a", "b"], servers.ask) == "here"
        assert servers.asked == ["a", "b"]
        await asyncio.sleep(0)
        assert servers.cancelled == ["a"], "nobody waits for it"
        assert found.late_s("a") and not found.late_s("b")
        assert await found.first(["a", "b"], servers.ask) == "here"
        assert servers.asked == ["a", "b", "b"]

    run(work)


def test_what_one_server_does_not_have_another_may_have() -> None:
    async def work(found: Lookups) -> None:
        servers = _Servers(a="", b=NotConnectedError("refused"), c="here")
        assert await found.first(["a", "b", "c"], servers.ask) == "here"
        assert [found.late_s(one) > 0 for one in "abc"] == [False, True, False]

    run(work)


def test_nobody_has_it_or_nobody_answers() -> None:
    async def work(found: Lookups) -> None:
        assert await found.first(["a", "b"], _Servers(a="", b="").ask) is None
        assert await found.first([], _Servers().ask) is None
        with pytest.raises(NotConnectedError, match="refused"):
            await found.first(["a", "b"], _Servers(a="", b=NotConnectedError("refused")).ask)

    run(work)


def test_a_question_is_under_way_once_and_whoever_goes_does_not_end_it() -> None:
    async def work(found: Lookups) -> None:
        begun, go_on = 0, asyncio.Event()

        async def look() -> str:
            nonlocal begun
            begun += 1
            await go_on.wait()
            return "here"

        tasks = [asyncio.create_task(found.together("key", look)) for _ in range(50)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        go_on.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert begun == 1 and results[1:] == ["here"] * 49

    run(work)


def test_what_was_not_there_when_another_looked_is_looked_for_again() -> None:
    """A topic is made while somebody else's question about it is on its way."""

    async def work(found: Lookups) -> None:
        is_there, begun, go_on = False, asyncio.Event(), asyncio.Event()

        async def look() -> str | None:
            seen = is_there
            begun.set()
            await go_on.wait()
            return "here" if seen else None

        early = asyncio.create_task(found.together("key", look))
        await begun.wait()
        is_there = True
        late = [asyncio.create_task(found.together("key", look)) for _ in range(3)]
        await asyncio.sleep(0)
        go_on.set()
        assert await early is None
        assert await asyncio.gather(*late) == ["here"] * 3

    run(work)


def test_queues_of_brokers_that_are_late_are_passed_over() -> None:
    now_s = 100.0
    found = Lookups(lambda: now_s)
    queues = tuple(QueueData(f"broker-{one}", 2, 2, 6, 0) for one in "abc")
    brokers = tuple(BrokerData("c", f"broker-{one}", {0: one}) for one in "abc")
    route = Route(TopicRouteData(queues, brokers))

    def next_ones(count: int) -> str:
        return "".join(route.pick(found).broker[-1] for _ in range(count))

    assert next_ones(6) == "abbcca"
    found.late("b")
    assert next_ones(6) == "accaac"
    now_s = 103.0
    found.late("c")
    assert next_ones(4) == "aaaa"
    now_s = 105.0
    found.late("a")
    # None answers: the first that was late may be back.
    assert next_ones(4) == "bbbb"
    now_s = 110.0
    assert next_ones(4) == "bbbb" and found.late_s("b") == 0.0
    now_s = 115.0
    assert sorted(next_ones(6)) == list("aabbcc") and not found.late_until


class _Probed:
    """Servers that are asked whether they answer anything: True, False while one hangs, or why it cannot be reached."""

    def __init__(self, found: Lookups, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lookups, "_PROBE_S", 0.02)
        monkeypatch.setattr(lookups, "_AGAIN_S", 0.02)
        self.answers = True
        self.failure: AerobeeError | None = None
        self.times = 0
        self.told: list[str] = []
        self.is_told = asyncio.Event()
        self.asked = asyncio.Semaphore(0)
        found.probe = self.ask
        found.on_hung.append(self.hung)

    async def ask(self, address: str) -> None:
        self.times += 1
        self.asked.release()
        if self.failure is not None:
            raise self.failure
        if not self.answers:
            await asyncio.Event().wait()

    def hung(self, address: str) -> None:
        self.told.append(address)
        self.is_told.set()


async def ended(found: Lookups) -> None:
    """Wait until nobody is watched any more."""
    await asyncio.wait(found.probes())


def test_a_server_that_answers_nothing_hangs_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(found: Lookups) -> None:
        servers = _Probed(found, monkeypatch)
        servers.answers = False
        found.suspect("a")
        assert found.late_s("a") and not found.hung, "it may be slow"
        await servers.is_told.wait()
        for _ in range(3):
            found.suspect("a")
        assert found.hung == {"a"} and found.late_s("a")
        for _ in range(4):
            await servers.asked.acquire()
        assert servers.told == ["a"], "who waits is told once"
        servers.answers = True
        await ended(found)
        assert not found.late_s("a"), "it gets its share at once"
        await found.close()

    run(work)


@pytest.mark.parametrize("failure", [None, NotConnectedError("refused")])
def test_a_server_that_answers_or_refuses_is_only_late(
    monkeypatch: pytest.MonkeyPatch, failure: AerobeeError | None
) -> None:
    async def work(found: Lookups) -> None:
        servers = _Probed(found, monkeypatch)
        servers.failure = failure
        found.suspect("a")
        await ended(found)
        assert found.late_s("a") and not found.hung and servers.times == 1 and not servers.told

    run(work)


def test_a_server_that_hangs_is_not_watched_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(found: Lookups) -> None:
        servers = _Probed(found, monkeypatch)
        monkeypatch.setattr(lookups, "_HUNG_MAX_S", 0.1)
        servers.answers = False
        found.suspect("a")
        await ended(found)
        assert servers.told == ["a"] and not found.hung

    run(work)
