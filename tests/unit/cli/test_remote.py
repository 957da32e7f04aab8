"""Words of the command line that mean something: permissions, attributes; and that every command loads."""

import click
import pytest
from click.testing import CliRunner

from aerobee.cli.main import main
from aerobee.cli.remote import attributes_of, perm_of

OPTION = click.Option(["--x"])
CONTEXT = click.Context(click.Command("c"))


@pytest.mark.parametrize(
    ("text", "perm"), [("R", 4), ("w", 2), ("RW", 6), ("WR", 6), ("-", 0), ("6", 6), ("7", 7), (None, None)]
)
def test_permissions(text: str | None, perm: int | None) -> None:
    assert perm_of(CONTEXT, OPTION, text) == perm


@pytest.mark.parametrize("text", ["X", "8", "-1", "RWX", ""])
def test_what_is_no_permission(text: str) -> None:
    with pytest.raises(click.BadParameter):
        perm_of(CONTEXT, OPTION, text)


def test_attributes() -> None:
    words = ("message.type=FIFO", "+a=b=c", "gone-", "-gone.too")
    assert attributes_of(CONTEXT, OPTION, words) == {
        "+message.type": "FIFO",
        "+a": "b=c",
        "-gone": "",
        "-gone.too": "",
    }
    for word in ("plain", "=x", "-", "+=1"):
        with pytest.raises(click.BadParameter):
            attributes_of(CONTEXT, OPTION, (word,))


def test_every_command_loads_and_its_help_names_the_letters_of_mqadmin() -> None:
    context = click.Context(main)
    names = main.list_commands(context)
    assert names[0] == "up"
    for name in names:
        command = main.get_command(context, name)
        assert command is not None
        assert command.name == name
    shown = CliRunner().invoke(main.get_command(context, "topic"), ["delete", "--help"]).output  # type: ignore[arg-type]
    for words in ("-t, --topic", "-n, --namesrv", "--json", "--timeout", "--dry-run", "--yes"):
        assert words in shown
    assert main.get_command(context, "nonsense") is None
