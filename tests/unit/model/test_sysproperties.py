import pytest

from aerobee.errors import InvalidArgumentError
from aerobee.model import sysproperties as names


def test_users_and_rocketmqs_properties_are_told_apart() -> None:
    everything = {"a": "1", "UNIQ_KEY": "u", "__RMQ.TRANSIENT.X": "t", "INNER_NUM": "2", "KEYSX": "k"}
    assert names.split_properties(everything) == (
        {"a": "1", "KEYSX": "k"},
        {"UNIQ_KEY": "u", "__RMQ.TRANSIENT.X": "t", "INNER_NUM": "2"},
    )


@pytest.mark.parametrize("name", [*sorted(names.RESERVED), "__RMQ.TRANSIENT.any", "", "a\x01b", "a\x02"])
def test_refused_names(name: str) -> None:
    with pytest.raises(InvalidArgumentError):
        names.require_user_properties({name: "v"})


def test_values() -> None:
    names.require_user_properties({"a": "b", "c": "\x01"})
    for value in ("", "a\x02b"):
        with pytest.raises(InvalidArgumentError):
            names.require_user_properties({"a": value})
