"""The cores of this process. Clients on one event loop with equal settings share a core.

The first client opens the core, the last one closes it. A broker tells consumers apart by client id, so that a core has
one member of a consumer group: a second consumer of the group in the process gets a core of its own.
"""

from __future__ import annotations

import asyncio

from aerobee.client.core.clientcore import ClientCore
from aerobee.client.core.config import ClientConfig
from aerobee.client.core.identity import client_id_of
from aerobee.model.uniqueids import UniqueIds
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.entropy import SystemEntropy
from aerobee.runtime.process import fork_count, local_address, month_bounds_ms, nanoseconds, process_id

_cores: list[ClientCore] = []
_users: dict[ClientCore, int] = {}
# Cores of the parent process are kept in a child: collecting their sockets would disturb the parent's loop.
_inherited: list[ClientCore] = []


async def acquire_core(config: ClientConfig, *, consumer_group: str | None = None) -> ClientCore:
    """Return a started core. The caller gives it back with `release_core`."""
    loop = asyncio.get_running_loop()
    _set_aside_stale()
    for core in _cores:
        if core.loop is loop and core.config == config and consumer_group not in core.consumers:
            _users[core] += 1
            return core
    core = new_core(config)
    _cores.append(core)
    _users[core] = 1
    await core.start()
    return core


def lend_core(core: ClientCore) -> None:
    """Offer a started core to the clients of its loop that have equal settings. The last of them closes it."""
    _cores.append(core)
    _users[core] = 0


async def release_core(core: ClientCore) -> None:
    """Give a core back. The last user closes it. A core of another process is left alone."""
    if core.fork != fork_count() or core not in _users:
        return
    _users[core] -= 1
    if not _users[core]:
        del _users[core]
        _cores.remove(core)
        await core.close()


def new_core(config: ClientConfig) -> ClientCore:
    """Return a core on the clock, entropy and network of this machine. RocketMQ: ClientConfig.buildMQClientId."""
    ip = config.client_ip or local_address()
    pid = process_id()
    entropy = SystemEntropy()
    client_id = client_id_of(ip, config.instance_name or f"{pid}#{nanoseconds()}", config.unit_name)
    unique_ids = UniqueIds(ip, pid, entropy.token(4), month_bounds_ms)
    return ClientCore(config, client_id, unique_ids, clock=SystemClock(), entropy=entropy)


def _set_aside_stale() -> None:
    count = fork_count()
    for core in list(_cores):
        is_inherited = core.fork != count
        if is_inherited or (core.loop is not None and core.loop.is_closed()):
            _cores.remove(core)
            _users.pop(core, None)
            if is_inherited:
                _inherited.append(core)
