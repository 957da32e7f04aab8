"""The command lines of mqadmin's sub-commands, read as Apache's parser reads them.

RocketMQ: ServerUtil.parseCmdLine, which uses commons-cli's DefaultParser: `-t x`, `-tx`, `--topic x`, `--topic=x`,
`-topic x`, and any beginning of a long name that stands for one option.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aerobee.errors import InvalidArgumentError
from aerobee.model.numbers import NumberError, parse_int


class WrongOptionsError(InvalidArgumentError):
    """A command line that Apache's parser refuses. The message is Apache's."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Opt:
    """One option. `short` is empty for an option that has only a long name."""

    short: str
    long: str
    meaning: str
    required: bool = False
    takes_value: bool = True
    # Options of the same word exclude each other, and one of them is required.
    one_of: str = ""

    @property
    def key(self) -> str:
        return self.short or self.long


HELP = Opt("h", "help", "Print help", takes_value=False)
NAMESRV = Opt("n", "namesrvAddr", "Name server address list, eg: '192.168.0.1:9876;192.168.0.2:9876'")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one command line."""

    values: dict[str, str]

    def has(self, key: str) -> bool:
        return key in self.values

    def text(self, key: str, default: str = "") -> str:
        """Return the value without spaces around it."""
        return self.values.get(key, default).strip()

    def number(self, key: str, default: int) -> int:
        """Return a number. Raise WrongOptionsError for anything else, where Apache prints a stack trace."""
        if key not in self.values:
            return default
        text = self.text(key)
        try:
            return parse_int(text.removeprefix("+"))
        except NumberError:
            raise WrongOptionsError(f"-{key} {text} is not a number") from None

    def truth(self, key: str, default: bool = False) -> bool:
        """Return whether the value is `true`, in any case, as Java reads it."""
        return self.text(key).lower() == "true" if key in self.values else default


def parse(options: Sequence[Opt], words: Sequence[str]) -> Options:
    """Return the options of a command line. Raise WrongOptionsError with Apache's words."""
    options = (HELP, NAMESRV, *(one for one in options if one.short != "n"))
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            break
        if not word.startswith("-") or word == "-":
            # What is no option is ignored, and nothing after it is read.
            break
        option, value = _split(options, word)
        if option.takes_value and value is None:
            if not rest or _is_option(options, rest[0]):
                raise WrongOptionsError(f"Missing argument for option: {option.key}")
            value = rest.pop(0)
        if option.one_of:
            other = next((o for o in options if o.one_of == option.one_of and o is not option and o.key in found), None)
            if other is not None:
                raise WrongOptionsError(
                    f"The option '{option.key}' was specified but an option from this group has already been selected: "
                    f"'{other.key}'"
                )
        found[option.key] = _unquoted(value or "")
    if "h" not in found:
        _require(options, found)
    return Options(found)


def _require(options: Sequence[Opt], found: dict[str, str]) -> None:
    missing = [one.key for one in options if one.required and one.key not in found]
    for group in dict.fromkeys(one.one_of for one in options if one.one_of):
        members = [one for one in options if one.one_of == group]
        if not any(one.key in found for one in members):
            missing.append("[" + ", ".join(f"-{one.short} {one.meaning}" for one in members) + "]")
    if missing:
        plural = "s" if len(missing) > 1 else ""
        raise WrongOptionsError(f"Missing required option{plural}: {', '.join(missing)}")


def _split(options: Sequence[Opt], word: str) -> tuple[Opt, str | None]:
    """Return the option of a word, and the value that is part of the word."""
    name, equals, value = word.lstrip("-").partition("=")
    given = value if equals else None
    if not word.startswith("--"):
        for one in options:
            if one.short == name:
                return one, given
    exact = [one for one in options if one.long == name]
    begins = exact or [one for one in options if name and one.long.startswith(name)]
    if len(begins) == 1:
        return begins[0], given
    if len(begins) > 1:
        choice = ", ".join(f"'{one.long}'" for one in begins)
        raise WrongOptionsError(f"Ambiguous option: '{word}'  (could be: {choice})")
    if not word.startswith("--"):
        for one in options:
            if one.short and word[1 : 1 + len(one.short)] == one.short and one.takes_value:
                return one, word[1 + len(one.short) :]
    raise WrongOptionsError(f"Unrecognized option: {word}")


def _is_option(options: Sequence[Opt], word: str) -> bool:
    if not word.startswith("-") or word == "-" or word[1:].replace(".", "", 1).isdecimal():
        return False
    try:
        _split(options, word)
    except WrongOptionsError:
        return False
    return True


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] == '"' and '"' not in value[1:-1]:
        return value[1:-1]
    return value


def usage(command: str, options: Sequence[Opt]) -> str:
    """Return the help of a sub-command: its options by name."""
    every = sorted((HELP, NAMESRV, *(one for one in options if one.short != "n")), key=lambda one: one.key.lower())
    heads = []
    for one in every:
        head = f"-{one.short},--{one.long}" if one.short else f"   --{one.long}"
        heads.append(head + (" <arg>" if one.takes_value else ""))
    width = max(map(len, heads)) + 3
    lines = [f" {head.ljust(width)}{one.meaning}" for head, one in zip(heads, every, strict=True)]
    return "\n".join([f"usage: mqadmin {command} [OPTIONS]", *lines])
