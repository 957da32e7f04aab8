"""Calling handlers: what their answers mean, how many run at once, how they are let end."""

from __future__ import annotations

import asyncio
import copy
import functools
import pickle
import threading
from dataclasses import replace

import pytest

from aerobee import DeadLetter, InvalidArgumentError, Message, RetryLater
from aerobee.client.consumer.push.dispatcher import HandlerDispatcher
from aerobee.client.consumer.push.listener import Handler, HandlerOutcome, HandlerVerdict, TopicListener
from aerobee.client.consumer.subscription import subscription
from aerobee.model.message import with_replier
from aerobee.runtime.workers import Workers

MESSAGE = Message("T", b"x", message_id="id")


def call(handler: Handler, *messages: Message, batch: int = 1) -> HandlerOutcome:
    async def main() -> HandlerOutcome:
        workers = Workers(1, "test-worker")
        try:
            listener = TopicListener(handler, subscription("T"), batch=batch)
            return await listener.call(messages or (MESSAGE,), workers, lambda: False)
        finally:
            workers.close(idle=True)

    return asyncio.run(main())


class AsyncObject:
    async def __call__(self, message: Message) -> None:
        assert message is MESSAGE


async def fine(message: Message, more: int = 0) -> None:
    assert message is MESSAGE


async def wrong(message: Message) -> str:
    return "thanks"


async def later(message: Message) -> None:
    raise RetryLater(delay_level=5)


async def dead(message: Message) -> None:
    raise DeadLetter("unreadable")


async def broken(message: Message) -> None:
    raise ValueError("no")


def raising(error: BaseException) -> list[Handler]:
    """Return a coroutine function and a plain one."""

    async def on_the_loop(message: Message) -> None:
        raise error

    def in_a_thread(message: Message) -> None:
        raise error

    return [on_the_loop, in_a_thread]


async def cancels_itself(message: Message) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


class TestListener:
    @pytest.mark.parametrize("handler", [fine, AsyncObject(), functools.partial(fine, more=1), lambda m: fine(m)])
    def test_none_is_done_whatever_kind_of_callable(self, handler: Handler) -> None:
        assert call(handler).done

    def test_a_plain_function_runs_in_a_thread_of_ours(self) -> None:
        names: list[str] = []
        assert call(lambda message: names.append(threading.current_thread().name)).done
        assert names[0].startswith("test-worker")

    def test_everything_else_is_not_done(self) -> None:
        assert call(wrong).verdict is HandlerVerdict.WRONG_RETURN
        assert call(broken) == HandlerOutcome(HandlerVerdict.EXCEPTION, reason="ValueError: no")
        assert call(later).send_back_level == 5
        assert call(dead).send_back_level == -1 and call(dead).dead and not call(dead).done
        assert call(broken).send_back_level == 0

    @pytest.mark.parametrize(
        "kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit, StopIteration]
    )
    def test_whatever_is_raised_means_again_and_the_loop_goes_on(self, kind: type[BaseException]) -> None:
        for handler in raising(kind("no")):
            outcome = call(handler)
            assert outcome.verdict is HandlerVerdict.EXCEPTION, (kind, handler)
            assert kind.__name__ in outcome.reason

    def test_a_handler_that_cancels_itself_is_no_stop_of_ours(self) -> None:
        assert call(cancels_itself).verdict is HandlerVerdict.EXCEPTION

    def test_a_stop_cancels_and_there_is_no_answer(self) -> None:
        async def main() -> None:
            workers, began = Workers(1, "test-worker"), asyncio.Event()

            async def endless(message: Message) -> None:
                began.set()
                await asyncio.Event().wait()

            listener = TopicListener(endless, subscription("T"))
            task = asyncio.ensure_future(listener.call([MESSAGE], workers, lambda: True))
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())

    def test_an_ordered_queue_is_halted_for_its_level(self) -> None:
        waits = [HandlerOutcome(HandlerVerdict.RETRY, level).halt_s(7.0) for level in (0, 1, 3, 18, 19)]
        assert waits == [7.0, 1.0, 10.0, 7200.0, 7200.0]

    def test_a_batch_is_a_list(self) -> None:
        got: list[object] = []
        assert call(got.append, MESSAGE, MESSAGE, batch=2).done
        assert got == [[MESSAGE, MESSAGE]]

    def test_a_level_is_a_number_that_a_broker_takes(self) -> None:
        assert RetryLater(delay_level=30).delay_level == 30  # a broker may have more levels than RocketMQ's 18
        for level in (-1, 2**31):
            with pytest.raises(InvalidArgumentError):
                RetryLater(delay_level=level)


class TestDispatcher:
    def test_runs_so_many_at_once_in_order(self) -> None:
        async def main() -> None:
            dispatcher = HandlerDispatcher(2)
            gate = asyncio.Event()
            began: list[int] = []
            ended = asyncio.Event()

            def step(number: int) -> None:
                async def work() -> None:
                    began.append(number)
                    await gate.wait()
                    if number == 4:
                        ended.set()

                dispatcher.submit(work)

            for number in range(5):
                step(number)
            await asyncio.sleep(0)
            assert began == [0, 1]
            gate.set()
            await ended.wait()
            assert began == [0, 1, 2, 3, 4]
            assert await dispatcher.drain(1) == 0

        asyncio.run(main())

    def test_drains_what_runs_and_forgets_what_waits(self) -> None:
        async def main() -> None:
            dispatcher = HandlerDispatcher(1)
            gate = asyncio.Event()
            done: list[str] = []

            async def first() -> None:
                await gate.wait()
                done.append("first")

            async def second() -> None:
                done.append("second")

            dispatcher.submit(first)
            dispatcher.submit(second)
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(gate.set)
            assert await dispatcher.drain(5) == 0
            dispatcher.submit(second)
            assert done == ["first"]

        asyncio.run(main())

    @pytest.mark.parametrize("hurried", [False, True])
    def test_cancels_what_does_not_end(self, hurried: bool) -> None:
        async def main() -> None:
            dispatcher = HandlerDispatcher(1)
            cancelled: list[bool] = []

            async def endless() -> None:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled.append(True)
                    raise

            dispatcher.submit(endless)
            await asyncio.sleep(0)
            if hurried:
                asyncio.get_running_loop().call_soon(dispatcher.hurry)
            assert await dispatcher.drain(60 if hurried else 0.01) == 1
            assert cancelled == [True]

        asyncio.run(main())


def test_how_to_reply_is_no_part_of_the_message() -> None:
    async def answer(message: Message, body: bytes) -> object:
        return body

    message = with_replier(Message("T", b"x", message_id="id"), answer)
    assert message == MESSAGE and repr(message) == repr(MESSAGE)
    assert asyncio.run(wait_for_reply(message)) == b"pong"
    for copied in (pickle.loads(pickle.dumps(message)), copy.copy(message), replace(message)):
        assert copied == message
        with pytest.raises(InvalidArgumentError, match="did not come from a consumer"):
            copied.reply(b"")


async def wait_for_reply(message: Message) -> object:
    return await message.reply(b"pong")
