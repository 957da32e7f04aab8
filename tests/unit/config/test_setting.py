import enum
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.config.setting import (
    Settings,
    parse,
    render,
    replace_values,
    setting,
    settings_of,
    to_properties,
)
from aerobee.errors import ConfigError
from aerobee.testing.secrets import secret_for


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Settings):
    """A class for tests."""

    size: int = setting(10, java="size", minimum=1, maximum=100, reloadable=True, doc="A size.")
    ratio: float = setting(0.5, java="ratio", minimum=0, maximum=1, doc="A share.")
    on: bool = setting(False, java="isOn", doc="A switch.")
    name: str | None = setting(None, java="name", aliases=("oldName",), env="SAMPLE_NAME", doc="A name.")
    colour: Colour = setting(Colour.RED, java="colour", doc="A colour.")
    used: int = setting(75, java="used", minimum=10, maximum=95, clamp=True, doc="Clamped as Apache does.")
    password: str = setting("", java="password", secret=True, doc="Never shown.")

    def relations(self) -> Iterator[str]:
        if self.on and self.name is None:
            yield "isOn: needs a name"


def test_declared_once_and_found_in_order() -> None:
    assert [one.java for one in settings_of(Sample)] == [
        "size",
        "ratio",
        "isOn",
        "name",
        "colour",
        "used",
        "password",
    ]
    by_name = {one.name: one for one in settings_of(Sample)}
    assert by_name["name"].optional and by_name["name"].kind is str
    assert by_name["size"].reloadable and not by_name["ratio"].reloadable


def test_frozen_and_by_keyword() -> None:
    sample = Sample()
    with pytest.raises(FrozenInstanceError):
        sample.size = 5  # type: ignore[misc]
    with pytest.raises(TypeError):
        Sample(5)  # type: ignore[misc]


def test_every_bad_value_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        Sample(size=0, ratio=1.5, on="yes", colour="RED")  # type: ignore[arg-type]
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["size", "ratio", "isOn", "colour"]
    with pytest.raises(ConfigError):
        Sample(size=True)
    with pytest.raises(ConfigError):
        Sample(ratio=float("nan"))


def test_relations_and_clamping() -> None:
    with pytest.raises(ConfigError, match="needs a name"):
        Sample(on=True)
    assert Sample(on=True, name="x").name == "x"
    assert Sample(used=99).used == 95
    assert Sample(used=1).used == 10


def test_values_as_rocketmq_writes_them() -> None:
    by_name = {one.name: one for one in settings_of(Sample)}
    assert parse(by_name["size"], " 42 ") == 42
    assert parse(by_name["on"], "TRUE") is True
    assert parse(by_name["name"], "") is None
    assert parse(by_name["colour"], "BLUE") is Colour.BLUE
    assert parse(by_name["ratio"], "0.25") == 0.25
    for name, text in (
        ("size", "1024*1024"),
        ("size", "4m"),
        ("size", "1.0"),
        ("size", ""),
        ("size", "--1"),
        ("on", "1"),
        ("colour", "red"),
        ("ratio", "half"),
    ):
        with pytest.raises(ValueError, match=r"not|neither"):
            parse(by_name[name], text)


@given(st.integers(1, 100), st.floats(0, 1), st.booleans(), st.sampled_from(Colour))
def test_text_and_back(size: int, ratio: float, on: bool, colour: Colour) -> None:
    sample = Sample(size=size, ratio=ratio, on=on, name="n", colour=colour)
    for one in settings_of(Sample):
        value = getattr(sample, one.name)
        assert parse(one, render(value)) == value


def test_secrets_are_not_shown() -> None:
    shown = to_properties(Sample(password=secret_for("x")))
    assert secret_for("x") not in str(shown)
    assert shown["isOn"] == "false"


def test_a_changed_copy_is_checked_again() -> None:
    assert replace_values(Sample(), {"size": 7}) == Sample(size=7)
    with pytest.raises(ConfigError):
        replace_values(Sample(), {"size": 700})
