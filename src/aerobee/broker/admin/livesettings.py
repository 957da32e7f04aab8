"""The settings that change while a broker runs: only those declared `reloadable`, and all of a request or none.

They are an allow-list of switches and numbers. Paths, addresses and names never change over the wire: Apache's
deny-list let a caller write files of its choice (CVE-2023-33246). What was changed over the wire is kept in
`config/runtimeSettings.json` and is stronger than the file at the next start, until it is taken back. The operator's
own file is never written. RocketMQ: Configuration, AdminBrokerProcessor.updateBrokerConfig.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from aerobee.broker.config import BrokerConfig
from aerobee.broker.flowcontrol import flow_limits
from aerobee.broker.state import BrokerState
from aerobee.broker.topics import group_rules, topic_rules
from aerobee.config.loader import Loaded, unknown_key
from aerobee.config.setting import Setting, Settings, render, settings_of
from aerobee.errors import ConfigError, StoreError
from aerobee.model.dataversion import DataVersion
from aerobee.model.dialect import dumps, loads_object
from aerobee.runtime.paths import join
from aerobee.runtime.seams import Disk
from aerobee.store.config import StoreConfig
from aerobee.store.statefile import Done, StateFile
from aerobee.telemetry.stdlog import get_log

Changed = Callable[[BrokerConfig, StoreConfig], None]
FILE_NAME: Final = "runtimeSettings.json"
# The sources of a setting, besides the names that the loader gives (a file, `environment`, `--set`).
WIRE: Final = "wire"
DEFAULT: Final = "default"
_log = get_log("broker.settings")


class LiveSettings:
    """The settings in force. `changed` is called after the broker's shared state has taken new values."""

    def __init__(self, state: BrokerState, changed: Changed, origins: Mapping[str, str] | None = None) -> None:
        """`origins` tells which source has set a key before the start."""
        self.version = DataVersion()
        self._state = state
        # As file and command line say, and as it is now.
        self._base = self._loaded = Loaded((state.config, state.store.config), (), dict(origins or {}))
        self._changed = changed
        # What was changed over the wire, by RocketMQ's keys.
        self._wire: dict[str, str] = {}
        self._file = StateFile(state.store.disk, join(state.store.root, "config", FILE_NAME))
        # Called with values that an administrator gave, after they are in force.
        self.told: Callable[[Mapping[str, str]], None] = lambda values: None

    # -- asked

    def properties(self) -> dict[str, str]:
        """Every setting under RocketMQ's key; name and address as they came out."""
        state = self._state
        host, _, port = state.address.rpartition(":")
        found = {"brokerName": state.name, "brokerIP1": host, "listenPort": port}
        return dict(sorted({**self._loaded.properties(), **found}.items()))

    def sources(self) -> dict[str, str]:
        """Return where each setting that is not the default comes from."""
        return {**self._base.origins, **dict.fromkeys(self._wire, WIRE)}

    def fixed(self, keys: Iterable[str]) -> bool:
        """Tell whether some of the keys exist and may not change while the broker runs."""
        declared, asked = _declared(), set(keys)
        return any(not one.reloadable and asked & {one.java, *one.aliases} for one in declared)

    # -- changed

    def update(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """Take the values, or raise ConfigError and change nothing; what to warn of.

        A value that the file gives anyway is no longer one of the wire: after the change has been taken back nothing
        is left of it.
        """
        loaded = self._loaded.updated(values)
        wire = dict(self._wire)
        for one in _named(values):
            now = _value(loaded, one)
            text = next(values[key] for key in (one.java, *one.aliases) if key in values).strip()
            # A file's value is brought to the nearer bound, as in Apache. From a caller it is a mistake: with -1, the
            # lowest bound of a disk ratio would delete the log of a disk that is a third full.
            if one.clamp and text != render(now):  # type: ignore[arg-type]
                raise ConfigError([f"{one.java}={text[:40]}: give a number from {one.minimum} to {one.maximum}"])
            if now == _value(self._base, one):
                wire.pop(one.java, None)
            else:
                wire[one.java] = render(now)  # type: ignore[arg-type]
        self._take(loaded, wire)
        return loaded.warnings

    def unset(self, keys: Iterable[str]) -> dict[str, str]:
        """Take back what was changed over the wire. Return what holds instead. Raise ConfigError for unknown keys."""
        asked = list(keys)
        unknown = [key for key in asked if not _named([key])]
        if unknown:
            known = [one.java for one in _declared()]
            raise ConfigError([unknown_key(key, known) for key in unknown])
        back = {one.java: _text(self._base, one) for one in _named(asked) if one.java in self._wire}
        if back:
            self._take(self._loaded.updated(back), {key: text for key, text in self._wire.items() if key not in back})
        return back

    def is_kept(self, key: str) -> bool:
        """Tell whether a setting was changed over the wire, by whatever of its names."""
        return any(one.java in self._wire for one in _named([key]))

    def reload(self, loaded: Loaded) -> tuple[list[str], list[str]]:
        """Take the file and the command line as they are now. Return what changed, and what only a restart can change.

        What was changed over the wire stays. Raise ConfigError where a value cannot be taken; then nothing changed.
        """
        base: list[Settings] = []
        changed: list[str] = []
        later: list[str] = []
        for before in self._base.configs:
            found: Any = loaded.get(type(before))
            kept = {}
            for one in settings_of(type(before)):
                old, new = getattr(before, one.name), getattr(found, one.name)
                if old == new or one.java in _AS_IT_CAME_OUT:
                    kept[one.name] = old
                elif one.reloadable:
                    changed.append(one.java)
                else:
                    later.append(one.java)
                    kept[one.name] = old
            base.append(dataclasses.replace(found, **kept))
        self._base = Loaded(tuple(base), (), dict(loaded.origins))
        wire = {one.java: text for key, text in self._wire.items() for one in _named([key])}
        now = self._base.updated(wire)
        if changed:
            self._take(now, wire)
        return [key for key in changed if key not in wire], later

    def _take(self, loaded: Loaded, wire: dict[str, str]) -> None:
        config, store_config = loaded.get(BrokerConfig), loaded.get(StoreConfig)
        is_new = wire != self._wire
        self._loaded, self._wire = loaded, wire
        self.version = self.version.next(self._state.clock.now_ms())
        apply_settings(self._state, config, store_config)
        self._changed(config, store_config)
        if is_new:
            self._submit(_logged)

    # -- kept

    def _submit(self, done: Done) -> None:
        self._file.submit(dumps({"settings": dict(sorted(self._wire.items()))}), done)

    def when_kept(self, done: Done) -> None:
        """Call back when a restart would know the changes."""
        self._submit(done)

    def load(self) -> None:
        """Take up what was changed over the wire before the start. What cannot be used any more is left out, with a
        warning, and stays in the file until the next change."""
        try:
            values = self._file.load(settings_in) or {}
        except StoreError as error:
            _log.error("the settings that were changed over the wire are lost", reason=error)
            return
        taken: dict[str, str] = {}
        for key, text in values.items():
            try:
                self._loaded.updated({**taken, key: text})
            except ConfigError as error:
                _log.warning("a setting that was changed over the wire is left out", key=key, reason=error.message)
            else:
                taken[key] = text
        if not taken:
            return
        self._loaded = self._loaded.updated(taken)
        self._wire = taken
        config, store_config = self._loaded.get(BrokerConfig), self._loaded.get(StoreConfig)
        apply_settings(self._state, config, store_config)
        self._changed(config, store_config)
        _log.info("settings that were changed over the wire hold", **taken)


def forget_kept(disk: Disk, root: str, key: str) -> None:
    """Take one setting out of what a closed store keeps of changes over the wire."""
    file = StateFile(disk, join(root, "config", FILE_NAME))
    values = file.load(settings_in) or {}
    if values.pop(key, None) is not None:
        file.save(dumps({"settings": values}))


# Settings that a start fills in or takes from elsewhere, so that they differ from the file without a change.
_AS_IT_CAME_OUT: Final = frozenset(
    ("brokerName", "brokerIP1", "brokerIP2", "listenPort", "namesrvAddr", "storePathRootDir")
)


def _declared() -> list[Setting]:
    return [one for cls in (BrokerConfig, StoreConfig) for one in settings_of(cls)]


def _named(keys: Iterable[str]) -> list[Setting]:
    """Return the declarations that keys name, one for each key of RocketMQ's."""
    asked = set(keys)
    found = {one.java: one for one in _declared() if asked & {one.java, *one.aliases}}
    return list(found.values())


def _value(loaded: Loaded, one: Setting) -> object:
    for config in loaded.configs:
        if one in settings_of(type(config)):
            return getattr(config, one.name)
    raise KeyError(one.java)


def _text(loaded: Loaded, one: Setting) -> str:
    return render(_value(loaded, one))  # type: ignore[arg-type]


def settings_in(content: bytes) -> dict[str, str]:
    """Return the settings of the file. Raise ValueError for content that makes no sense."""
    found = loads_object(content)["settings"]
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise ValueError("settings are texts by their keys")
    return {str(key): text for key, text in found.items()}


def _logged(error: Exception | None) -> None:
    if error is not None:
        _log.error("settings that were changed over the wire are lost at a restart", reason=error)


def apply_settings(state: BrokerState, config: BrokerConfig, store_config: StoreConfig) -> None:
    """Give the new settings to everything that keeps a copy of one."""
    state.config = config
    state.store.reconfigure(store_config)
    state.catalog.topic_rules = topic_rules(config)
    state.catalog.group_rules = group_rules(config)
    state.clients.expiry_s = config.channel_expired_timeout_ms / 1000
    state.clients.notify = config.notify_consumer_ids_changed_enable
    state.offsets.server_side_reset = config.use_server_side_reset_offset
    state.puts.timeout_s = store_config.sync_flush_timeout_ms / 1000
    state.flow.limits = flow_limits(config, store_config.os_page_cache_busy_time_out_ms)
