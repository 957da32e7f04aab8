"""Beyond loopback a server starts only with TLS and users, or where the operator says otherwise."""

from __future__ import annotations

import itertools

import pytest

from aerobee.app.startrule import HostOptions, Start, judge, require_start
from aerobee.config.loader import Source, load
from aerobee.coordination.config import CoordinationConfig
from aerobee.errors import InvalidArgumentError
from aerobee.net.config import TlsConfig
from aerobee.store.config import StoreConfig

# (TLS enforced, users, --insecure) of a server that other machines reach: whether it starts, and the word of a refusal
# or of the warning.
BEYOND = {
    (False, False, False): (False, "does not authenticate"),
    (True, False, False): (False, "does not authenticate"),
    (False, True, False): (False, "in the clear"),
    (True, True, False): (True, ""),
    (False, False, True): (True, "without users and TLS"),
    (True, False, True): (True, "without users"),
    (False, True, True): (True, "without TLS"),
    (True, True, True): (True, ""),
}


@pytest.mark.parametrize("beyond", ["0.0.0.0", "10.0.0.5", "::", "2001:db8::5"])
@pytest.mark.parametrize("loopback", ["127.0.0.1", "127.9.9.9", "::1"])
def test_start_rule_beyond_loopback(beyond: str, loopback: str) -> None:
    combinations = list(itertools.product((False, True), (False, True), (False, True), (loopback, beyond)))
    assert len(combinations) == 2**4
    for tls, users, insecure, host in combinations:
        verdict = judge(Start(host=host, has_tls=tls, has_users=users, insecure=insecure))
        if host == loopback:
            assert (verdict.refusal, verdict.warning) == ("", "")
            continue
        starts, word = BEYOND[tls, users, insecure]
        assert (verdict.refusal == "") == starts, (tls, users, insecure)
        assert word in (verdict.warning if starts else verdict.refusal)
        assert bool(verdict.hint) != starts
        assert bool(verdict.warning) == (starts and bool(word))


def test_plain_clients_drop_tls_and_nothing_else() -> None:
    def judged(tls: bool, users: bool) -> tuple[bool, bool]:
        verdict = judge(Start(host="0.0.0.0", has_tls=tls, has_users=users, plain_clients=True))
        return not verdict.refusal, bool(verdict.warning)

    assert judged(False, True) == (True, True)
    assert judged(True, True) == (True, False)
    assert judged(False, False) == (False, False)
    assert judged(True, False) == (False, False)


def test_ports_of_replicas_need_insecure_where_they_prove_nothing() -> None:
    for more, word in (({"has_ha_port": True}, "haListenPort"), ({"has_open_group": True}, "no secret")):
        refused = judge(Start(host="0.0.0.0", has_tls=True, has_users=True, **more))
        assert word in refused.refusal and "--insecure" in refused.hint
        assert judge(Start(host="127.0.0.1", has_tls=False, has_users=False, **more)).refusal == ""
        opened = judge(Start(host="0.0.0.0", has_tls=True, has_users=True, insecure=True, **more))
        assert opened.refusal == "" and "HA port" in opened.warning


def test_settings_are_judged_as_they_are_loaded() -> None:
    def refusal(**settings: str) -> str:
        classes = (TlsConfig, StoreConfig, CoordinationConfig)
        loaded = load(classes, Source("test", {key.replace("__", "."): value for key, value in settings.items()}))
        try:
            require_start(loaded, HostOptions(host="10.0.0.5", plain_clients=False))
        except InvalidArgumentError as error:
            return error.message
        return ""

    assert "does not authenticate" in refusal()
    warned: list[str] = []
    loaded = load((TlsConfig, StoreConfig), Source("test", {"brokerRole": "SYNC_MASTER"}))
    require_start(loaded, HostOptions(host="10.0.0.5", insecure=True), warn=warned.append)
    assert len(warned) == 1 and "HA port" in warned[0]
