"""`aerobee up --dashboard`: the dashboard as a child process, which ends with its parent.

It listens on loopback only. Other machines reach a dashboard through a proxy with TLS (docs/dashboard.md).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Final

from aerobee.app.keeping import KeptChild
from aerobee.app.secure import SecuredFacts
from aerobee.client.core import PROFILE_VARIABLE, PROFILES_FILE_VARIABLE
from aerobee.errors import AerobeeError
from aerobee.runtime.children import Child, start_python
from aerobee.runtime.process import set_environment
from aerobee.runtime.seams import Clock
from aerobee.runtime.tasks import Tasks
from aerobee.telemetry.stdlog import get_log

_STOP_PATIENCE_S: Final = 10.0
_log = get_log("up")


class DashboardError(AerobeeError):
    """The dashboard cannot be started."""


@contextlib.asynccontextmanager
async def dashboard_beside(
    namesrv: str, port: int, secured: SecuredFacts | None, clock: Clock
) -> AsyncGenerator[str, None]:
    """Run a dashboard of this cluster beside the servers and yield its address. It is started again if it ends.

    With `secured`, it collects its figures as the administrator; people log in with users of their own.
    """

    async def start(before: str) -> Child:
        # Where it ran before it takes the same port again.
        own = before.rstrip("/").rpartition(":")[2] or str(port)
        profile: dict[str, str | None] = {}
        if secured is not None:
            profile = {PROFILES_FILE_VARIABLE: secured.credentials, PROFILE_VARIABLE: secured.profile}
        with set_environment(profile):
            return await start_python("aerobee", ["dashboard", "--with-parent", "-n", namesrv, "--port", own])

    child = KeptChild("dashboard", start, clock, what="dashboard")
    address = await child.begin()
    if not address:
        await child.stop(_STOP_PATIENCE_S)
        raise DashboardError(
            "the dashboard could not be started: the lines above say why", hint="Start without --dashboard, or mend it."
        )
    keeping = Tasks(_failed)
    keeping.start(child.keep(), name="keep the dashboard")
    try:
        yield address
    finally:
        await keeping.close()
        await child.stop(_STOP_PATIENCE_S)


def _failed(name: str, error: BaseException) -> None:
    _log.error("the dashboard is no longer kept running", exc_info=error)
