"""`aerobee ping`: checks whether a cluster answers."""

from __future__ import annotations

import asyncio

import click

from aerobee.admin.cluster import BrokerStatus
from aerobee.admin.cluster import ping as ping_cluster
from aerobee.admin.connection import AdminConnection
from aerobee.cli.numbers import NumberRange
from aerobee.cli.output import DONE, print_json
from aerobee.cli.remote import converse, options
from aerobee.errors import TransportError
from aerobee.runtime.clock import SystemClock

_TRY_INTERVAL_S = 0.2


@click.command()
@options(click.option("--wait", "wait_s", type=NumberRange(min=0), default=0.0, help="Seconds to wait for an answer."))
def ping(namesrv: str, timeout_s: float, as_json: bool, wait_s: float) -> int:
    """Check whether a name server and its brokers answer. The exit code is 3 if they do not."""
    clock = SystemClock()
    started_s = clock.monotonic()

    async def ask(admin: AdminConnection) -> tuple[BrokerStatus, ...]:
        while True:
            try:
                return await ping_cluster(admin)
            except TransportError:
                if clock.monotonic() - started_s + _TRY_INTERVAL_S > wait_s:
                    raise
            await asyncio.sleep(_TRY_INTERVAL_S)

    found = converse(namesrv, timeout_s, ask)
    elapsed_ms = int((clock.monotonic() - started_s) * 1000)
    if as_json:
        brokers = [{"broker": one.broker, "address": one.address, "version": one.version} for one in found]
        print_json({"namesrv": namesrv, "brokers": brokers, "elapsed_ms": elapsed_ms})
    else:
        names = ", ".join(f"{one.broker} at {one.address}" for one in found)
        click.echo(f"name server {namesrv} answers, and so does {names} ({elapsed_ms} ms)")
    return DONE
