"""The settings of a coordination store: endpoints, credentials and certificates."""

from __future__ import annotations

import pytest

from aerobee.config.setting import to_properties
from aerobee.coordination.config import CoordinationConfig
from aerobee.coordination.endpoints import parse_endpoints
from aerobee.errors import ConfigError
from aerobee.testing.certificates import Certificate
from aerobee.testing.secrets import secret_for


def test_endpoints_are_a_list_with_semicolons() -> None:
    found = parse_endpoints("http://a:1; http://[::1]:2/;c:3;")
    assert [str(one) for one in found] == ["http://a:1", "http://[::1]:2", "http://c:3"]
    assert [str(one) for one in parse_endpoints("https://a:1")] == ["https://a:1"]


@pytest.mark.parametrize(
    "text",
    ["", ";", "a", "a:", ":1", "a:0", "a:65536", "a:x", "ftp://a:1", "http://a:1;https://b:1", "a b:1", "u@a:1",
     "a\r\nX: y:1", "a/b:1", "a:" + "9" * 5000, "ä:1"],
)  # fmt: skip
def test_endpoints_without_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_endpoints(text)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"addr": "nowhere"}, "host:port"),
        ({"addr": "h:1", "user": "u"}, "need each other"),
        ({"addr": "https://h:1", "cert_path": "c"}, "need each other"),
        ({"addr": "h:1", "trust_cert_path": "c"}, "not https"),
        ({"addr": "h:1", "user": "u", "password": "p"}, "without https"),
    ],
)
def test_settings_that_cannot_be_right_are_refused(fields: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        CoordinationConfig(**fields)


def test_no_address_means_no_coordination() -> None:
    assert CoordinationConfig().reached() is None


def test_a_password_is_sent_to_this_machine_and_never_printed() -> None:
    config = CoordinationConfig(addr="127.0.0.1:1;localhost:2", user="u", password=secret_for("u"))
    reached = config.reached()
    assert reached is not None
    assert (reached.user, reached.password, reached.tls) == ("u", secret_for("u"), None)
    assert secret_for("u") not in str(to_properties(config)) + repr(reached)


def test_https_verifies_the_server_and_shows_a_certificate(certificate: Certificate) -> None:
    config = CoordinationConfig(
        addr="https://h:1",
        trust_cert_path=str(certificate.cert),
        cert_path=str(certificate.cert),
        key_path=str(certificate.key),
    )
    reached = config.reached()
    assert reached is not None and reached.tls is not None
    assert reached.tls.check_hostname
    with pytest.raises(ConfigError, match="coordinatorTrustCertPath"):
        CoordinationConfig(addr="https://h:1", trust_cert_path="/none").reached()
