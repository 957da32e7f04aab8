from dataclasses import dataclass

import pytest

from aerobee.config.apachekeys import APACHE_KEYS, WITHOUT_EFFECT
from aerobee.config.loader import Source, environment_source, file_source, load, override_source
from aerobee.config.refused import REFUSED
from aerobee.config.setting import Settings, setting, settings_of
from aerobee.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Left(Settings):
    """One component."""

    listen_port: int = setting(10911, java="listenPort", minimum=0, maximum=65535, doc="A port.")
    flush_interval_ms: int = setting(500, java="flushIntervalCommitLog", minimum=1, reloadable=True, doc="An interval.")
    file_size: int = setting(4096, java="mappedFileSize", aliases=("mapedFileSize",), doc="A size.")
    pool: bool = setting(False, java="transientPool", effect="No effect: there is no pool.", doc="A pool.")
    used: int = setting(75, java="used", minimum=10, maximum=95, clamp=True, reloadable=True, doc="A share.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Right(Settings):
    """Another, of the same file."""

    listen_port: int = setting(1, java="listenPort", doc="The same key.")
    address: str = setting("", java="namesrvAddr", env="NAMESRV_ADDR", doc="An address.")


BOTH = (Left, Right)


def test_sources_in_order_and_where_each_value_came_from() -> None:
    loaded = load(
        BOTH,
        file_source("a.conf", b"listenPort=20911\nnamesrvAddr=file:1\nflushIntervalCommitLog=100\n"),
        environment_source(BOTH, {"NAMESRV_ADDR": "env:1", "HOME": "/x"}),
        override_source(["flushIntervalCommitLog=7"]),
    )
    assert loaded.get(Left).listen_port == loaded.get(Right).listen_port == 20911
    assert loaded.get(Right).address == "env:1"
    assert loaded.get(Left).flush_interval_ms == 7
    assert loaded.origins == {
        "listenPort": "a.conf",
        "namesrvAddr": "environment",
        "flushIntervalCommitLog": "--set",
    }
    assert "flushIntervalCommitLog=7 (--set)" in loaded.changes()
    assert loaded.properties()["mappedFileSize"] == "4096"
    assert loaded.warnings == ()
    with pytest.raises(KeyError):
        loaded.get(Settings)


def test_every_problem_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load(
            BOTH,
            file_source("a.conf", b"listenPort=99999999\nflushIntervalCommitLog=soon\nlistnPort=1\nqwertz=2\n"),
            override_source(["transientPool=maybe"]),
        )
    text = "\n".join(caught.value.problems)
    assert "a.conf: flushIntervalCommitLog: 'soon' is not a whole number" in text
    assert "a.conf: unknown key 'listnPort', did you mean 'listenPort'?" in text
    assert "unknown key 'qwertz'" in text
    assert "--set: transientPool: 'maybe' is neither true nor false" in text
    assert "listenPort: 99999999 is above 65535" in text
    assert len(caught.value.problems) == 5


def test_lenient_goes_on_with_unknown_keys_only() -> None:
    loaded = load(BOTH, file_source("a.conf", b"listnPort=1\n"), lenient=True)
    assert loaded.warnings == ("a.conf: unknown key 'listnPort', did you mean 'listenPort'?",)
    with pytest.raises(ConfigError):
        load(BOTH, file_source("a.conf", b"listenPort=x\n"), lenient=True)


def test_keys_of_apache_without_effect_are_one_warning_each() -> None:
    loaded = load(BOTH, file_source("a.conf", b"serverSelectorThreads=3\nconnectTimeoutMillis=1\n"))
    assert loaded.warnings == (
        "a.conf: serverSelectorThreads has no effect: "
        "one event loop answers all requests, so there is no thread pool to size",
        "a.conf: connectTimeoutMillis has no effect: "
        "Aerobee has no counterpart of this key of Apache's NettyClientConfig",
    )


@pytest.mark.parametrize("key", REFUSED)
def test_a_feature_that_does_not_exist_stops_the_start_and_is_refused_over_the_wire(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}=true promises that .*, but .*Remove the key"):
        load(BOTH, Source("a.conf", {key: "true"}))
    loaded = load(BOTH, Source("a.conf", {key: "true"}), Source("--set", {key: "false"}))
    assert loaded.warnings == (f"--set: {key} is always off in Aerobee",)
    with pytest.raises(ConfigError, match=key):
        loaded.updated({key: "true"})


def test_every_key_that_is_refused_or_has_no_effect_is_one_of_apaches() -> None:
    assert {*REFUSED, *WITHOUT_EFFECT} <= APACHE_KEYS.keys()


def test_accepted_without_effect_says_so_once() -> None:
    source = file_source("a.conf", b"transientPool=true\nused=99\n")
    loaded = load(BOTH, source, source)
    assert loaded.warnings == (
        "transientPool: No effect: there is no pool.",
        "used: 99 is out of bounds, 95 is used",
    )
    assert loaded.get(Left).used == 95
    assert load(BOTH, Source("x", {"transientPool": "false"})).warnings == ()


def test_old_spellings() -> None:
    assert load(BOTH, Source("x", {"mapedFileSize": "5000"})).get(Left).file_size == 5000
    with pytest.raises(ConfigError, match="the same setting and differ"):
        load(BOTH, Source("x", {"mapedFileSize": "5000", "mappedFileSize": "6000"}))
    assert load(BOTH, Source("x", {"mapedFileSize": "5", "mappedFileSize": " 5"})).get(Left).file_size == 5


def test_malformed_overrides() -> None:
    with pytest.raises(ConfigError) as caught:
        override_source(["a", "=b", "c=d=e"])
    assert len(caught.value.problems) == 2
    assert override_source(["c=d=e", "x="]).values == {"c": "d=e", "x": ""}


def test_a_change_at_run_time_gives_new_objects_or_nothing() -> None:
    loaded = load(BOTH, Source("x", {"listenPort": "7"}))
    changed = loaded.updated({"flushIntervalCommitLog": "9", "listenPort": "7"})
    assert changed.get(Left).flush_interval_ms == 9
    assert loaded.get(Left).flush_interval_ms == 500
    assert changed.get(Right) is loaded.get(Right)
    assert changed.origins["flushIntervalCommitLog"] == "update"
    with pytest.raises(ConfigError) as caught:
        loaded.updated({"listenPort": "8", "flushIntervalCommitLog": "0", "nope": "1"})
    text = "\n".join(caught.value.problems)
    assert "listenPort: cannot change while running" in text
    assert "flushIntervalCommitLog: 0 is below 1" in text
    assert "unknown key 'nope'" in text


def test_the_table_of_apaches_keys() -> None:
    assert len(APACHE_KEYS) > 550
    assert APACHE_KEYS["mappedFileSizeCommitLog"] == "MessageStoreConfig"
    assert APACHE_KEYS["brokerIP1"] == "BrokerConfig"
    assert APACHE_KEYS["dLegerGroup"] == "MessageStoreConfig"
    assert all(key.replace(".", "_").isidentifier() for key in APACHE_KEYS)
    assert len(settings_of(Left)) == 5
