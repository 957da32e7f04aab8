"""Sessions, throttling, tokens and origins, with time as an argument."""

import pytest

from aerobee.dashboard.security import (
    IDLE_S,
    LIFE_S,
    SESSIONS_MAX,
    TRIES,
    TRIES_OF_ADDRESS,
    TRIES_OF_NAME,
    FormTokens,
    LoginThrottle,
    Origins,
    Person,
    Role,
    Sessions,
)
from aerobee.dashboard.usersfile import UsersFile, line_of
from aerobee.errors import ConfigError

ANNA = Person("anna", Role.operator)


def test_a_session_ends_when_it_rests_and_when_it_is_old() -> None:
    sessions = Sessions()
    sessions.begin("k", ANNA, 0.0)
    assert sessions.find("k", IDLE_S) is not None
    assert sessions.find("k", 2 * IDLE_S) is not None
    assert sessions.find("k", 3 * IDLE_S + 1) is None
    sessions.begin("k", ANNA, 0.0)
    now_s = 0.0
    while now_s + IDLE_S <= LIFE_S:
        now_s += IDLE_S
        assert sessions.find("k", now_s) is not None
    assert sessions.find("k", LIFE_S + 1) is None


def test_too_many_sessions_end_the_one_that_rested_longest() -> None:
    sessions = Sessions()
    for number in range(SESSIONS_MAX):
        sessions.begin(f"k{number}", ANNA, 0.0)
    assert sessions.find("k0", 1.0) is not None
    sessions.begin("new", ANNA, 1.0)
    assert sessions.find("k0", 1.0) is not None
    assert sessions.find("k1", 1.0) is None


def test_tries_of_a_name_and_of_an_address_are_bounded() -> None:
    throttle = LoginThrottle()
    assert [throttle.wait_s("anna", "a", 0.0) for _ in range(TRIES)] == [0.0] * TRIES
    assert throttle.wait_s("anna", "a", 1.0) == 59.0
    assert throttle.wait_s("bert", "a", 1.0) == 0.0
    assert throttle.wait_s("anna", "b", 1.0) == 0.0
    assert throttle.wait_s("anna", "a", 60.0) == 0.0
    spray = LoginThrottle()
    taken = [spray.wait_s(f"n{number}", "a", 0.0) for number in range(TRIES_OF_ADDRESS + 1)]
    assert taken.count(0.0) == TRIES_OF_ADDRESS
    assert taken[-1] == 60.0


def test_made_up_addresses_give_no_more_tries() -> None:
    """A proxy may pass on an address that its caller chose."""
    throttle = LoginThrottle()
    taken = [throttle.wait_s("anna", f"10.0.0.{number}", 0.0) for number in range(TRIES_OF_NAME + 1)]
    assert taken.count(0.0) == TRIES_OF_NAME
    assert throttle.wait_s("anna", "10.0.0.1", 59.0) == 1.0
    assert throttle.wait_s("anna", "10.0.0.1", 60.0) == 0.0


def test_good_logins_use_up_no_tries() -> None:
    """Twenty people behind one address could log in a minute, and then nobody."""
    throttle = LoginThrottle()
    for number in range(TRIES_OF_NAME + 1):
        assert throttle.wait_s("anna", "a", 0.0) == 0.0, number
        throttle.forget("anna", "a")
    # They give no tries to those who do not get in.
    taken = [throttle.wait_s(f"n{number}", "a", 0.0) for number in range(TRIES_OF_ADDRESS + 1)]
    assert taken.count(0.0) == TRIES_OF_ADDRESS


def test_a_session_is_looked_at_without_keeping_it() -> None:
    sessions = Sessions()
    sessions.begin("k", ANNA, 0.0)
    assert sessions.peek("k", IDLE_S) is not None
    assert sessions.peek("k", IDLE_S + 1) is None


def test_a_token_fits_its_cookie_only() -> None:
    tokens = FormTokens(b"secret")
    assert tokens.fits("cookie", tokens.of("cookie"))
    assert not tokens.fits("other", tokens.of("cookie"))
    assert not tokens.fits("", tokens.of(""))
    assert not tokens.fits("cookie", "ä" * 64)


@pytest.mark.parametrize("host", ["localhost:8088", "127.0.0.1:8088", "127.9.9.9", "[::1]:8088", "LOCALHOST"])
def test_loopback_names_pass(host: str) -> None:
    assert not Origins(is_loopback=True).refuses_host(host)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8088", "10.0.0.1", "", "localhost.evil.example"])
def test_names_that_point_at_loopback_are_refused(host: str) -> None:
    assert Origins(is_loopback=True).refuses_host(host)
    assert not Origins(is_loopback=False).refuses_host(host)


def test_the_public_name_passes() -> None:
    origins = Origins(is_loopback=True, public_url="https://mq.example.org/sub")
    assert not origins.refuses_host("mq.example.org")
    assert not origins.refuses_change("https://mq.example.org", "", ("127.0.0.1:8088",))
    assert origins.refuses_change("https://evil.example", "", ("127.0.0.1:8088",))


def test_changes_from_other_sites_are_refused() -> None:
    origins = Origins(is_loopback=True)
    assert not origins.refuses_change("http://localhost:8088", "same-origin", ("localhost:8088",))
    assert not origins.refuses_change("http://localhost:8088", "", ("localhost:8088",))
    assert not origins.refuses_change("", "", ("localhost:8088",))
    assert origins.refuses_change("http://localhost:9999", "", ("localhost:8088",))
    assert origins.refuses_change("http://localhost:9999", "same-site", ("localhost:8088",))
    assert origins.refuses_change("null", "", ("localhost:8088",))


def test_people_of_a_file() -> None:
    contents = [f"# people\n\n{line_of('anna', Role.operator, 'long enough', bytes)}\n".encode()]
    people = UsersFile("people", lambda path: contents[0])
    assert people.check("anna", "long enough") == ANNA
    assert people.check("anna", "long enougH") is None
    assert people.check("bert", "long enough") is None
    contents[0] = b""
    people.load()
    assert people.check("anna", "long enough") is None
    assert people.role_of("anna") is None


@pytest.mark.parametrize("line", ["anna", "anna:admin:plain:x:y", "anna:king:scrypt:AA==:AA==", "a:admin:scrypt:-:-"])
def test_a_broken_line_stops_the_start(line: str) -> None:
    with pytest.raises(ConfigError, match="line 1"):
        UsersFile("people", lambda path: line.encode())


@pytest.mark.parametrize(("name", "password"), [("", "long enough"), ("a:b", "long enough"), ("anna", "short")])
def test_a_line_needs_a_name_and_a_password(name: str, password: str) -> None:
    with pytest.raises(ConfigError):
        line_of(name, Role.admin, password, bytes)
