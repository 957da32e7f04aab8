"""How clients call functions of users: coroutines on the loop, plain functions in threads.

Whatever the function raises is returned as a value. A handler that calls sys.exit(), or lets a cancellation out, has
not done its work: it must neither end the loop that serves all others nor lose its message.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable

from aerobee.runtime.workers import Workers

UserFunction = Callable[..., object]


def is_async(function: UserFunction) -> bool:
    """Tell whether calling the function makes a coroutine and does not block."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


async def call_user_code(
    function: UserFunction, argument: object, workers: Workers, stopping: Callable[[], bool]
) -> tuple[object, BaseException | None]:
    """Return what the function returned, and what it raised. Only a cancellation while `stopping` raises here."""
    task = asyncio.current_task()
    try:
        if is_async(function):
            result = function(argument)
        else:
            result, error = await workers.run(_caught, function, argument)
            if error is not None:
                return None, error
        if inspect.isawaitable(result):
            result = await result
    except asyncio.CancelledError as error:
        if stopping():
            raise
        while task is not None and task.cancelling():  # the function cancelled its own task
            task.uncancel()
        return None, error
    except BaseException as error:
        if isinstance(error, GeneratorExit) and _current_task() is not task:
            raise  # the coroutine was discarded; this does not come from the user's function
        return None, error
    return result, None


def _caught(function: UserFunction, argument: object) -> tuple[object, BaseException | None]:
    """Catch every exception in the thread: a future cannot hold all of them (StopIteration), and some end the loop."""
    try:
        return function(argument), None
    except BaseException as error:  # noqa: BLE001 - see above
        return None, error


def _current_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
