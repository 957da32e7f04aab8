"""`aerobee migrate`: follow a running Apache broker, take over its name, and give it back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import click

from aerobee.admin import migration
from aerobee.admin.connection import AdminConnection
from aerobee.admin.migration import MasterFacts, MigrationRefusedError
from aerobee.cli.connecting import admin_connection, asked_credentials, connection_options, tls_context
from aerobee.cli.numbers import NumberRange
from aerobee.cli.output import DONE, REFUSED, CommandGroup, print_json, print_json_line, show_size
from aerobee.cli.remote import confirmed, yes_option
from aerobee.cli.serving import host_options
from aerobee.client.core import signer

if TYPE_CHECKING:
    from aerobee.app.following import Following
    from aerobee.app.servers import ServerOptions
    from aerobee.config.loader import Loaded

F = TypeVar("F", bound=Callable[..., Any])


class Given(TypedDict):
    """The options that every step takes."""

    master: str
    ha: str | None
    namesrv: str
    conf: str | None
    settings: tuple[str, ...]
    host: str
    insecure: bool
    plain_clients: bool
    patience_s: float
    as_json: bool
    dry_run: bool


_OPTIONS = (
    click.option("--dry-run", is_flag=True, help="Only look, and print what would be done."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text."),
    click.option(
        "--patience", "patience_s", type=NumberRange(min=1), default=60.0, show_default=True, metavar="SECONDS",
        help="How long to wait for the copy to be level, and for a broker to stop.",
    ),
    *host_options,
    click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the new broker."),
    click.option("-c", "--config", "conf", metavar="FILE", help="The broker.conf of the new broker."),
    click.option(
        "-n", "--namesrv", envvar="NAMESRV_ADDR", default="127.0.0.1:9876", show_default=True,
        help="Name servers, separated by semicolons.",
    ),
    click.option("--ha", metavar="HOST:PORT", help="The HA port of the broker, if it is not the one that it tells."),
    click.option("--from", "master", required=True, metavar="HOST:PORT", help="The broker to move from."),
)  # fmt: skip


def _options(command: F) -> F:
    command = connection_options(command)
    for option in _OPTIONS:
        command = option(command)
    return command


@click.group(cls=CommandGroup)
def migrate() -> None:
    """Move from Apache's broker to Aerobee, while it runs, and back.

    docs/migration.md describes the whole way.
    """


@migrate.command()
@_options
def check(**given: Unpack[Given]) -> int:
    """Look whether a broker can be followed and replaced. Nothing is changed."""

    async def run(stop: asyncio.Event) -> int:
        loaded, _ = _loaded(given)
        async with admin_connection(given["namesrv"]) as admin:
            facts = await migration.master_facts(admin, given["master"], given["ha"])
            findings = await migration.check_master(admin, facts, _free_bytes(loaded))
            findings += [migration.Finding(True, text) for text in _contradictions(loaded, facts)]
        if given["as_json"]:
            print_json({"master": facts, "findings": findings})
        else:
            for one in findings:
                click.echo(f"{'STOP' if one.stops else 'ok  '}  {one.text}")
        return REFUSED if any(one.stops for one in findings) else DONE

    return _run(run)


@migrate.command()
@click.option("--until-level", is_flag=True, help="End when the copy is level.")
@_options
def follow(until_level: bool, **given: Unpack[Given]) -> int:
    """Copy a broker's log and tables, and stay level with it until stopped. The broker is not changed."""

    async def run(stop: asyncio.Event) -> int:
        async with _followed(given) as (following, _):
            seen_end = -1
            while not stop.is_set():
                lag = await following.lag()
                if lag.problem:
                    raise MigrationRefusedError(lag.problem)
                if given["as_json"]:
                    print_json_line(lag)
                else:
                    state = "following" if lag.is_connected else "not connected"
                    click.echo(f"{state}, {show_size(lag.behind_bytes)} behind, log ends at {lag.log_end}")
                # Under load the copy is always a little behind. It is level when it has what was there a second ago.
                if until_level and lag.is_connected and lag.log_end >= seen_end >= 0 and lag.tables_copied:
                    return DONE
                seen_end = lag.master_end
                await _pause(stop, 1.0)
        return DONE

    return _looked_or_run(given, "copy its log and tables to {store}, and stay level with it", run)


@migrate.command()
@click.option(
    "--records", type=click.IntRange(0, 1_000_000), default=1000, show_default=True, help="Records to compare."
)
@_options
def verify(records: int, **given: Unpack[Given]) -> int:
    """Compare a copy with its broker: queues, groups, and records byte by byte. `follow` must not run."""

    async def run(stop: asyncio.Event) -> int:
        from aerobee.app.migration import Comparison
        from aerobee.runtime.entropy import SystemEntropy

        async with _followed(given) as (following, admin):
            if not await following.level(given["patience_s"], within_bytes=1 << 20):
                raise MigrationRefusedError(f"the copy is not level after {given['patience_s']:.0f} s")
            if not await following.copy_tables():
                raise MigrationRefusedError("topics, groups and offsets could not be copied")
            verdict = await Comparison(following, admin, SystemEntropy()).run(records, exact=False)
        if given["as_json"]:
            print_json(verdict)
        else:
            for problem in verdict.problems:
                click.echo(f"DIFFERS  {problem}")
            click.echo(
                f"{verdict.queues} queues with {verdict.messages} messages, {verdict.groups} offsets of groups, "
                f"{verdict.records} records compared: {len(verdict.problems)} differ"
            )
        return REFUSED if verdict.problems else DONE

    return _looked_or_run(given, "compare {store} with it", run)


@migrate.command()
@click.option("--pid", type=click.IntRange(min=2), help="The process of the broker, on this machine: it gets SIGTERM.")
@click.option("--their-store", metavar="DIR", help="The broker's store directory, if it can be read here.")
@click.option(
    "--records", type=click.IntRange(0, 1_000_000), default=200, show_default=True, help="Records to compare."
)
@click.option("--no-serve", is_flag=True, help="Do not start the new broker; print how to start it.")
@yes_option
@_options
def switch(
    pid: int | None, their_store: str | None, records: int, no_serve: bool, yes: bool, **given: Unpack[Given]
) -> int:
    """Stop a broker and serve in its place, under its name. `follow` must not run."""
    if not given["dry_run"] and not yes and not confirmed(f"Stop the broker at {given['master']} and take its place?"):
        return REFUSED

    async def run(stop: asyncio.Event) -> int:
        from aerobee.app import servers
        from aerobee.app.migration import Switch
        from aerobee.runtime.clock import SystemClock
        from aerobee.runtime.entropy import SystemEntropy

        loaded, options = _loaded(given)
        clock = SystemClock()
        async with _followed(given) as (following, admin):
            findings = await migration.check_master(
                admin, following.facts, _free_bytes(loaded) + following.store.log_end
            )
            _require([one.text for one in findings if one.stops])
            step = Switch(following, admin, following.disk, clock, SystemEntropy(), lambda text: _say(given, text))
            await step.run(pid=pid, their_store=their_store, patience_s=given["patience_s"], sample=records)
        if no_serve:
            _say(given, f"start the new broker now: aerobee broker -c {given['conf'] or 'FILE'}")
            return DONE

        def ready(address: str) -> None:
            pause_s = clock.monotonic() - step.paused_s
            _say(given, f"the new broker serves at {address}; no message was taken for {pause_s:.1f} s")

        return await servers.serve_broker(loaded, options, ready, stop)

    return _looked_or_run(
        given, "make it read-only, wait until the copy is the same, stop it, and serve {store} under its name", run
    )


@migrate.command()
@_options
def guard(**given: Unpack[Given]) -> int:
    """Wait until Apache's old broker follows the new one as its slave. --from names the new broker."""

    async def run(stop: asyncio.Event) -> int:
        async with admin_connection(given["namesrv"]) as admin:
            facts = await migration.master_facts(admin, given["master"], given["ha"])
            click.echo(
                f"Start Apache's broker on its old directory with: brokerName={facts.name}, brokerId=1, "
                "brokerRole=SLAVE, and the settings that it had. Do not set haMasterAddress.",
                err=given["as_json"],
            )
            async with asyncio.timeout(given["patience_s"]):
                while True:
                    status = await migration.replication_of(admin, given["master"])
                    level = [one for one in status.ha_connection_info if one.diff == 0]
                    if level:
                        break
                    await _pause(stop, 0.5)
                    if stop.is_set():
                        return REFUSED
        _say(given, f"slave {level[0].addr} is level at {level[0].slave_ack_offset}: there is a way back")
        return DONE

    async def bounded(stop: asyncio.Event) -> int:
        try:
            return await run(stop)
        except TimeoutError:
            raise MigrationRefusedError(f"no slave is level after {given['patience_s']:.0f} s") from None

    return _run(bounded)


@migrate.command()
@click.option("--pid", type=click.IntRange(min=2), required=True, help="The process of the new broker.")
@click.option("--their-pid", type=click.IntRange(min=2), required=True, help="The process of Apache's slave.")
@click.option("--their-store", metavar="DIR", required=True, help="The store directory of Apache's slave.")
@click.option("--accept-repeats", is_flag=True, help="Go back even if timed messages of one second may be repeated.")
@yes_option
@_options
def rollback(
    pid: int, their_pid: int, their_store: str, accept_repeats: bool, yes: bool, **given: Unpack[Given]
) -> int:
    """Stop the new broker and its slave at the same message, and prepare Apache's directory to lead again.

    --from names the new broker.
    """
    if not given["dry_run"] and not yes and not confirmed(f"Stop the brokers {pid} and {their_pid} and go back?"):
        return REFUSED

    async def run(stop: asyncio.Event) -> int:
        from aerobee.app.migration import Rollback
        from aerobee.app.process import disk_of_this_loop
        from aerobee.runtime.clock import SystemClock

        loaded, _ = _loaded(given)
        disk = disk_of_this_loop()
        try:
            async with admin_connection(given["namesrv"]) as admin:
                await _require_no_timers(admin, given["master"], accept_repeats)
                step = Rollback(admin, disk, SystemClock(), lambda text: _say(given, text))
                await step.run(
                    given["master"], _store_config(loaded), their_store.rstrip("/"), pid=pid, their_pid=their_pid,
                    patience_s=given["patience_s"],
                )  # fmt: skip
        finally:
            disk.close()
        _say(given, "start Apache's broker now with brokerId=0 and brokerRole as before, and never this one beside it")
        return DONE

    return _looked_or_run(
        given, "make it read-only, stop it and its slave, and give its state to Apache's directory", run
    )


# -- what the steps share


async def _require_no_timers(admin: AdminConnection, address: str, accepted: bool) -> None:
    from aerobee.admin.cluster import runtime_info

    told = await runtime_info(admin, address)
    used = any(told.get(key, "0") != "0" for key in ("timerMessagePending", "timerMessageDelivered"))
    if used and not accepted:
        raise MigrationRefusedError(
            "timed messages are in use. Apache's broker goes on at the beginning of a second, so those that were "
            "delivered in the last second before the stop may be delivered twice",
            hint="add --accept-repeats if that is acceptable",
        )


def _loaded(given: Given) -> tuple[Loaded, ServerOptions]:
    """Return the settings of the new broker."""
    from aerobee.app.servers import BROKER_CLASSES, ServerOptions, load_settings
    from aerobee.app.startrule import require_start
    from aerobee.runtime.machine import resolve

    options = ServerOptions(
        host=resolve(given["host"]), insecure=given["insecure"], plain_clients=given["plain_clients"],
        config_file=given["conf"], settings=given["settings"],
    )  # fmt: skip
    loaded = load_settings(BROKER_CLASSES, options)
    # Said before the old broker stops.
    require_start(loaded, options)
    return loaded, options


def _store_config(loaded: Loaded) -> Any:
    from aerobee.config.setting import replace_values
    from aerobee.runtime.machine import home_path
    from aerobee.store.config import StoreConfig

    config = loaded.get(StoreConfig)
    return replace_values(config, {"store_path_root_dir": home_path(config.store_path_root_dir)})


def _free_bytes(loaded: Loaded) -> int:
    from aerobee.runtime.machine import free_bytes

    return free_bytes(_store_config(loaded).store_path_root_dir)


def _contradictions(loaded: Loaded, facts: MasterFacts) -> list[str]:
    """Return what the settings of the new broker and the old broker say differently."""
    from aerobee.broker.config import BrokerConfig
    from aerobee.store.config import BrokerRole, StoreConfig

    broker, store = loaded.get(BrokerConfig), loaded.get(StoreConfig)
    found = []
    pairs = (
        ("brokerName", broker.broker_name, facts.name),
        ("brokerClusterName", broker.cluster_name, facts.cluster),
        ("mappedFileSizeCommitLog", store.mapped_file_size_commit_log, facts.segment_size),
        ("messageDelayLevel", store.message_delay_level, facts.settings.get("messageDelayLevel")),
    )
    for key, ours, theirs in pairs:
        if theirs not in (None, "") and ours != theirs:
            found.append(f"the new broker has {key}={ours}, and the old one {theirs}: set it in the new broker.conf")
    if store.broker_role is BrokerRole.SLAVE:
        found.append("the new broker has brokerRole=SLAVE: it is to be the master")
    return found


def _require(problems: list[str]) -> None:
    if problems:
        raise MigrationRefusedError("; ".join(problems))


class _followed:  # noqa: N801 - used as a context manager, like a function
    """Open the directory and let it follow the broker, as an async context."""

    def __init__(self, given: Given) -> None:
        self._given = given

    async def __aenter__(self) -> tuple[Following, AdminConnection]:
        from aerobee.app.following import Following
        from aerobee.app.process import disk_of_this_loop
        from aerobee.net.client import RemotingClient
        from aerobee.runtime.clock import SystemClock
        from aerobee.runtime.net import RealNet

        given = self._given
        loaded, _ = _loaded(given)
        self._admin = admin_connection(given["namesrv"])
        credentials = asked_credentials()
        sign = None if credentials is None else signer(credentials)
        self._client = RemotingClient(tls=tls_context(), sign=sign)
        self._disk = disk_of_this_loop()
        try:
            facts = await migration.master_facts(self._admin, given["master"], given["ha"])
            _require(_contradictions(loaded, facts))
            self.following = Following(facts, _store_config(loaded), self._disk, SystemClock(), RealNet(), self._client)
            self.following.open()
        except BaseException:
            await self._let_go()
            raise
        self.following.start()
        return self.following, self._admin

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.following.store.is_open:
            await self.following.close()
        await self._let_go()

    async def _let_go(self) -> None:
        await self._admin.close()
        await self._client.close()
        self._disk.close()


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return


def _say(given: Given, text: str) -> None:
    if given["as_json"]:
        print_json_line({"done": text})
    else:
        click.echo(text)


def _run(serve: Callable[[asyncio.Event], Awaitable[int]]) -> int:
    from aerobee.app import process

    return process.run(serve, log_level="WARNING")


def _looked_or_run(given: Given, would: str, serve: Callable[[asyncio.Event], Awaitable[int]]) -> int:
    """Run a step, or with --dry-run say what it would do to which broker."""
    if not given["dry_run"]:
        return _run(serve)

    async def look(stop: asyncio.Event) -> int:
        loaded, _ = _loaded(given)
        async with admin_connection(given["namesrv"]) as admin:
            facts = await migration.master_facts(admin, given["master"], given["ha"])
        problems = _contradictions(loaded, facts)
        text = would.format(store=_store_config(loaded).store_path_root_dir)
        if given["as_json"]:
            print_json({"dry_run": True, "master": facts, "would": text, "problems": problems})
        else:
            click.echo(f"broker {facts.name} of cluster {facts.cluster} at {facts.address} ({facts.version})")
            click.echo(f"would {text}")
            for problem in problems:
                click.echo(f"STOP  {problem}")
        return REFUSED if problems else DONE

    return _run(look)
