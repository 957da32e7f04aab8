"""What `up --secure` makes: found again, finished after a crash at any write, renewed in time."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aerobee.app import authority, secure
from aerobee.app.secure import Secured
from aerobee.runtime.certificates import read_certificates
from aerobee.runtime.clock import SystemClock
from aerobee.testing.secrets import made_secret
from aerobee.testing.shifting import ShiftedClock

WRITES = 6  # key and certificate of server and authority, the profile, the settings


class CutError(Exception):
    """The process ends here."""


@contextmanager
def cut_after(monkeypatch: pytest.MonkeyPatch, writes: int) -> Iterator[None]:
    """End the process in place of the write after so many."""
    left = [writes]

    def counted(write: object) -> object:
        def run(*args: object, **named: object) -> None:
            if not left[0]:
                raise CutError
            left[0] -= 1
            write(*args, **named)  # type: ignore[operator]

        return run

    with monkeypatch.context() as patch:
        for module, name in ((authority, "create_file"), (authority, "replace_file"), (secure, "replace_file")):
            patch.setattr(module, name, counted(getattr(module, name)))
        yield


def made(data: Path, host: str = "127.0.0.1", advertise: str | None = None) -> Secured:
    return secure.secure(str(data), host, advertise, SystemClock(), made_secret)


def is_whole(data: Path) -> bool:
    """Return whether server and authority fit together."""
    directory = data / "secure"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem", directory / "server.key")
    (ca,) = read_certificates((directory / "ca.pem").read_bytes(), "ca")
    (server,) = read_certificates((directory / "server.pem").read_bytes(), "server")
    return server.issuer == ca.subject and {"localhost", "127.0.0.1", "::1"} <= set(server.names)


@pytest.mark.parametrize("writes", range(WRITES + 1))
def test_a_first_start_that_was_cut_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    with cut_after(monkeypatch, writes):
        if writes < WRITES:
            with pytest.raises(CutError):
                made(tmp_path)
        else:
            made(tmp_path)
    again = made(tmp_path)
    assert is_whole(tmp_path)
    third = made(tmp_path)
    assert third.settings == again.settings and not third.facts.is_new


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_a_renewal_that_was_cut_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    made(tmp_path)
    ca = (tmp_path / "secure" / "ca.pem").read_bytes()
    with cut_after(monkeypatch, writes):
        try:
            made(tmp_path, advertise="127.0.0.9")
        except CutError:
            pass
    made(tmp_path, advertise="127.0.0.9")
    assert is_whole(tmp_path) and (tmp_path / "secure" / "ca.pem").read_bytes() == ca
    (server,) = read_certificates((tmp_path / "secure" / "server.pem").read_bytes(), "server")
    assert "127.0.0.9" in server.names


def test_the_certificate_is_renewed_before_it_expires(tmp_path: Path) -> None:
    made(tmp_path)
    before = (tmp_path / "secure" / "server.pem").read_bytes()
    clock = ShiftedClock()
    for days, is_same in ((300, True), (370, False)):
        clock.shift_s = days * 86_400.0
        secure.secure(str(tmp_path), "127.0.0.1", None, clock, made_secret)
        assert ((tmp_path / "secure" / "server.pem").read_bytes() == before) == is_same, days


def test_two_clusters_share_nothing(tmp_path: Path) -> None:
    one, other = made(tmp_path / "one"), made(tmp_path / "other")
    assert not set(one.settings["initAuthenticationUser"].split('"')[7:8]) & set(
        other.settings["initAuthenticationUser"].split('"')[7:8]
    )
    shutil.copy(tmp_path / "one" / "secure" / "server.pem", tmp_path / "other" / "secure" / "server.pem")
    made(tmp_path / "other")
    assert is_whole(tmp_path / "other"), "a pair that does not fit is made anew"


def test_no_text_shows_a_secret(tmp_path: Path) -> None:
    found = made(tmp_path)
    secret = found.settings["initAuthenticationUser"].split('"')[7]
    assert len(secret) == 24 and secret not in repr(found) and secret not in repr(found.facts)
