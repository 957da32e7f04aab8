from __future__ import annotations

import asyncio

import pytest

from aerobee.runtime.tasks import LoopTimers, Tasks
from aerobee.testing.loop import VirtualLoop, run_virtual


async def _forever(log: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        log.append(name)


async def _fail(delay_s: float, message: str) -> None:
    await asyncio.sleep(delay_s)
    raise ValueError(message)


def test_leaving_cancels_latest_first_and_waits() -> None:
    log: list[str] = []

    async def main(loop: VirtualLoop) -> None:
        async with Tasks() as tasks:
            for name in "abc":
                tasks.start(_forever(log, name), name=name)
            await asyncio.sleep(1)
            assert len(tasks) == 3
        assert len(tasks) == 0
        with pytest.raises(RuntimeError, match="closing"):
            tasks.start(_forever(log, "late"), name="late")

    run_virtual(main)
    assert log == ["c", "b", "a"]


def test_a_failure_ends_the_body_and_is_raised_from_it() -> None:
    log: list[str] = []

    async def main(loop: VirtualLoop) -> None:
        with pytest.raises(ExceptionGroup) as caught:
            async with Tasks() as tasks:
                tasks.start(_forever(log, "sibling"), name="sibling")
                tasks.start(_fail(2, "broken"), name="failing")
                await asyncio.sleep(1000)
        assert [str(error) for error in caught.value.exceptions] == ["broken"]
        assert loop.time() == pytest.approx(2) and log == ["sibling"]
        current = asyncio.current_task()
        assert current is not None and current.cancelling() == 0

    run_virtual(main)


def test_a_failure_that_somebody_listens_for_leaves_the_rest_alone() -> None:
    failures: list[tuple[str, str]] = []

    async def main(loop: VirtualLoop) -> None:
        async with Tasks(lambda name, error: failures.append((name, str(error)))) as tasks:
            survivor = tasks.start(_forever([], "survivor"), name="survivor")
            tasks.start(_fail(1, "one"), name="first")
            tasks.start(_fail(2, "two"), name="second")
            await asyncio.sleep(3)
            assert not survivor.done()

    run_virtual(main)
    assert failures == [("first", "one"), ("second", "two")]


def test_an_owner_without_a_body_raises_from_close() -> None:
    async def main(loop: VirtualLoop) -> None:
        tasks = Tasks()
        tasks.start(_fail(1, "broken"), name="failing")
        await asyncio.sleep(2)
        with pytest.raises(ExceptionGroup):
            await tasks.close()
        await tasks.close()

    run_virtual(main)


def test_a_task_that_the_caller_cancels_is_no_failure() -> None:
    async def main(loop: VirtualLoop) -> None:
        async with Tasks() as tasks:
            task = tasks.start(_forever([], "x"), name="x")
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(1)
            assert len(tasks) == 0

    run_virtual(main)


def test_a_cancelled_owner_ends_its_tasks_and_is_cancelled() -> None:
    log: list[str] = []

    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(5)
            log.append("ended")

    async def own() -> None:
        async with Tasks() as tasks:
            tasks.start(slow_to_end(), name="slow")
            await asyncio.Event().wait()

    async def main(loop: VirtualLoop) -> None:
        owner = loop.create_task(own())
        await asyncio.sleep(1)
        owner.cancel()
        await asyncio.sleep(1)
        owner.cancel()
        with pytest.raises(asyncio.CancelledError):
            await owner
        assert log == ["ended"]

    run_virtual(main)


def test_the_bodys_own_error_is_raised_as_it_is() -> None:
    async def main(loop: VirtualLoop) -> None:
        with pytest.raises(KeyError):
            async with Tasks() as tasks:
                tasks.start(_forever([], "x"), name="x")
                raise KeyError("body")

    run_virtual(main)


def test_loop_timers_call_once_unless_cancelled() -> None:
    called: list[float] = []

    async def main(loop: VirtualLoop) -> None:
        timers = LoopTimers(loop)
        timers.call_later(2, lambda: called.append(loop.time()))
        timers.call_later(1, lambda: called.append(-1.0)).cancel()
        await asyncio.sleep(10)

    run_virtual(main)
    assert called == [pytest.approx(2)]
