"""`aerobee namesrv` and `aerobee broker`: one server in a process, configured by a RocketMQ .conf file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aerobee.access.config import AccessConfig
from aerobee.app.identity import identified, joined, safe_metrics, unique_ids
from aerobee.app.process import disk_of_this_loop, listening, stopped_or_failed
from aerobee.app.startrule import HostOptions, require_start
from aerobee.broker.config import BrokerConfig
from aerobee.config.loader import Loaded, Source, environment_source, file_source, load, override_source
from aerobee.config.setting import Settings, replace_values, settings_of
from aerobee.coordination.config import CoordinationConfig
from aerobee.errors import AerobeeError, ConfigError, StoreDamagedError
from aerobee.namesrv.config import KV_CONFIG_PATH, NamesrvConfig
from aerobee.net.config import TlsConfig
from aerobee.replication.settings import ProcessStart
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.disk import RealDisk
from aerobee.runtime.entropy import SystemEntropy
from aerobee.runtime.machine import boot_id, directory_number, home_path, is_empty_directory, read_whole
from aerobee.runtime.net import RealNet
from aerobee.runtime.process import environment
from aerobee.runtime.shortage import descriptor_limit
from aerobee.runtime.signals import on_hangup
from aerobee.store.config import StoreConfig
from aerobee.telemetry.config import MetricsConfig
from aerobee.telemetry.stdlog import get_log

if TYPE_CHECKING:
    from aerobee.app.broker import BrokerNode
    from aerobee.coordination.group import GroupCoordinator

BROKER_CLASSES: tuple[type[Settings], ...] = (
    BrokerConfig, StoreConfig, TlsConfig, CoordinationConfig, MetricsConfig, AccessConfig,
)  # fmt: skip
NAMESRV_CLASSES: tuple[type[Settings], ...] = (NamesrvConfig, TlsConfig, MetricsConfig, AccessConfig)

# RocketMQ: the fields of BrokerConfig and MessageStoreConfig annotated @ImportantField.
IMPORTANT_KEYS = frozenset(
    (
        "namesrvAddr", "brokerIP1", "brokerIP2", "brokerName", "brokerClusterName", "brokerId", "autoCreateTopicEnable",
        "clusterTopicEnable", "brokerTopicEnable", "autoCreateSubscriptionGroup", "brokerPermission", "listenPort",
        "storePathRootDir", "storePathCommitLog", "flushIntervalCommitLog", "commitIntervalCommitLog",
        "flushCommitLogTimed", "deleteWhen", "fileReservedTime", "brokerRole", "flushDiskType", "haListenPort",
        "rejectTransactionMessage", "transientStorePoolEnable",
    )
)  # fmt: skip


class UnnamedStoreError(AerobeeError):
    """The default store directory holds a store that the operator did not name."""


class DamagedStartError(AerobeeError):
    """The store is damaged so that the broker cannot start. A service manager must not start it again and again."""

    # The exit code of the command; `deploy/systemd` knows it.
    exit_code = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions(HostOptions):
    """What the command line says."""

    config_file: str | None = None
    settings: tuple[str, ...] = ()
    flags: tuple[tuple[str, str], ...] = ()
    lenient: bool = False


def load_settings(classes: Sequence[type[Settings]], options: ServerOptions) -> Loaded:
    """Return the settings of file, environment, --set and flags. The last one wins.

    A variable that RocketMQ has too (NAMESRV_ADDR) is weaker than the file, as in Apache's servers. It is usually set
    for clients, and the environment of the shell must not override a server's file.
    """
    of_environment = environment_source(classes, environment())
    own = {key: value for key, value in of_environment.values.items() if key in _own_variables(classes)}
    shared = {key: value for key, value in of_environment.values.items() if key not in own}
    sources = [Source(of_environment.name, shared)]
    if options.config_file is not None:
        try:
            sources.append(file_source(options.config_file, read_whole(options.config_file)))
        except OSError as error:
            raise ConfigError([f"{options.config_file}: {error.strerror or error}"]) from error
    sources.append(Source(of_environment.name, own))
    sources.append(override_source(options.settings))
    sources.append(Source("flags", dict(options.flags)))
    return load(classes, *sources, lenient=options.lenient)


def _own_variables(classes: Sequence[type[Settings]]) -> set[str]:
    """Return the keys whose environment variable exists in Aerobee only."""
    return {one.java for cls in classes for one in settings_of(cls) if (one.env or "").startswith("AEROBEE_")}


def require_named_store(loaded: Loaded) -> str:
    """Return the store directory. Raise UnnamedStoreError if it is only the default and a store is in it."""
    root = home_path(loaded.get(StoreConfig).store_path_root_dir)
    named = "storePathRootDir" in loaded.origins
    if not named and not is_empty_directory(f"{root}/commitlog"):
        raise UnnamedStoreError(
            f"the default directory {root} holds a store already",
            hint=f"To use that store, add --set storePathRootDir={root}. Otherwise name another directory.",
        )
    return root


async def serve_broker(
    loaded: Loaded,
    options: ServerOptions,
    ready: Callable[[str], None],
    stop: asyncio.Event,
    *,
    started: Callable[[BrokerNode], None] = lambda node: None,
    make_disk: Callable[[], RealDisk] = disk_of_this_loop,
) -> int:
    """Run a broker until `stop` is set and return the exit code.

    Once it runs, `started` is called with the broker and `ready` with its address. Tests give a disk that fails.
    """
    from aerobee.app.broker import BrokerNode

    log = get_log("broker")
    _tell(loaded, log.warning, log.info)
    require_start(loaded, options, warn=log.warning)
    root = require_named_store(loaded)
    config = identified(loaded.get(BrokerConfig), options.host)
    store_config = replace_values(loaded.get(StoreConfig), {"store_path_root_dir": root})
    clock, entropy = SystemClock(), SystemEntropy()
    disk = make_disk()
    try:
        ids = unique_ids(config.broker_ip1, clock, entropy)
        broker = BrokerNode(
            config, store_config, disk, clock, entropy, host=options.host, unique_id=ids, tls=loaded.get(TlsConfig),
            descriptors=descriptor_limit(), coordinator=_coordinator(loaded, config),
            start=ProcessStart(boot_id=boot_id(), start_id=entropy.token(16).hex(), number_of=directory_number),
            metrics=safe_metrics(loaded, insecure=options.insecure), access=loaded.get(AccessConfig),
            origins=loaded.origins,
        )  # fmt: skip
        try:
            await listening(broker.start(), "broker", options.host, config.listen_port, "--set listenPort=0")
        except StoreDamagedError as error:
            raise DamagedStartError(error.message, hint=error.hint) from error
        try:
            state = broker.state
            log.info("broker started", name=state.name, address=state.address, fast_port=broker.fast_port, store=root)
            started(broker)
            ready(broker.state.address)
            with on_hangup(asyncio.get_running_loop(), lambda: _read_again(broker, options)):
                return await stopped_or_failed(stop, broker.failed)
        finally:
            await broker.stop()
            log.info("broker stopped")
    finally:
        disk.close()


def _read_again(broker: BrokerNode, options: ServerOptions) -> None:
    """Read the file again. A file that cannot be used changes nothing."""
    log = get_log("broker")
    try:
        loaded = load_settings(BROKER_CLASSES, options)
        for sentence in loaded.warnings:
            log.warning(sentence)
        broker.reload(loaded)
    except ConfigError as error:
        log.error("the settings cannot be read again, so all stay as they are", reason=error)


def _coordinator(loaded: Loaded, config: BrokerConfig) -> GroupCoordinator | None:
    """Return the place where this broker's group agrees, or None if the broker has no replicas."""
    reached = loaded.get(CoordinationConfig).reached()
    if reached is None:
        return None
    if "brokerName" not in loaded.origins:
        raise ConfigError(["coordinatorAddr needs brokerName, the name of the group, the same for all its replicas"])
    # Most brokers have no group: they do without the memory and the time that these take.
    from aerobee.coordination.etcd import EtcdClient
    from aerobee.coordination.group import GroupCoordinator

    clock = SystemClock()
    store = EtcdClient(reached, RealNet(), clock)
    return GroupCoordinator(store, config.cluster_name, config.broker_name, clock)


async def serve_namesrv(
    loaded: Loaded, options: ServerOptions, ready: Callable[[str], None], stop: asyncio.Event
) -> int:
    """Run a name server until `stop` is set and return the exit code. `ready` is called with its address."""
    from aerobee.app.namesrv import NamesrvNode

    log = get_log("namesrv")
    _tell(loaded, log.warning, log.info)
    require_start(loaded, options, warn=log.warning)
    config = loaded.get(NamesrvConfig)
    if "kvConfigPath" not in loaded.origins:
        config = replace_values(config, {"kv_config_path": home_path(KV_CONFIG_PATH)})
    disk = disk_of_this_loop()
    try:
        tls, limit, access = loaded.get(TlsConfig), descriptor_limit(), loaded.get(AccessConfig)
        metrics = safe_metrics(loaded, insecure=options.insecure)
        node = NamesrvNode(
            config, disk, SystemClock(), host=options.host, tls=tls, descriptors=limit, metrics=metrics, access=access
        )
        await listening(node.start(), "name server", options.host, config.listen_port, "--set listenPort=0")
        try:
            address = joined(options.host, node.port)
            log.info("name server started", address=address)
            ready(address)
            return await stopped_or_failed(stop, asyncio.Event())
        finally:
            await node.stop()
            log.info("name server stopped")
    finally:
        disk.close()


def _tell(loaded: Loaded, warning: Callable[[str], None], info: Callable[[str], None]) -> None:
    for sentence in loaded.warnings:
        warning(sentence)
    for line in loaded.changes():
        info(line)
