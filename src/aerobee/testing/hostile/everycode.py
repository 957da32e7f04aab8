"""Every request code, to the broker and to the name server, with the worst fields and bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from aerobee.protocol.codes import BINARY_CODE_MAX, PrivateRequestCode, RequestCode
from aerobee.testing.hostile.attacker import Attacker
from aerobee.testing.hostile.requests import CASES, DIGITS, Case, case
from aerobee.testing.junk import all_codes, sound_ext

# Requests by which an administrator removes something or turns it off. They are no attack.
_ENDING: Final = frozenset((
    RequestCode.DELETE_EXPIRED_COMMITLOG, RequestCode.WIPE_WRITE_PERM_OF_BROKER, RequestCode.UNREGISTER_BROKER,
))  # fmt: skip
_PRIVATE: Final = (
    PrivateRequestCode.BULK_PULL, PrivateRequestCode.BATCH_STATUS, PrivateRequestCode.BATCH_ROWS,
    PrivateRequestCode.BATCH_END, PrivateRequestCode.BATCH_BEGIN, PrivateRequestCode.KNOWN_GROUPS,
    PrivateRequestCode.TELL_GROUP, PrivateRequestCode.FORGET_GROUP, PrivateRequestCode.REPLICA_STATUS,
    PrivateRequestCode.REPLICA_FORCE,
)  # fmt: skip
_CODES: Final = tuple(code for code in (*all_codes(), *_PRIVATE) if code not in _ENDING)


def _every(
    ext_of: Callable[[dict[str, str]], Iterable[dict[str, str]]], body: bytes = b"", *, oneway: bool = False
) -> Case:
    """Return a case that sends each code with the fields that `ext_of` makes of sound ones."""

    def run(attacker: Attacker) -> None:
        for namesrv in (False, True):
            line = attacker.line(namesrv=namesrv)
            for code in _CODES:
                for ext in ext_of(sound_ext(code)):
                    for codec in (0, 1) if 0 <= code <= BINARY_CODE_MAX else (0,):
                        if not line.tell(code, ext, body, codec=codec, oneway=oneway):
                            line = attacker.line(namesrv=namesrv)
            line.ask(RequestCode.GET_BROKER_RUNTIME_INFO)

    return run


def _each(values: Iterable[str]) -> Callable[[dict[str, str]], Iterator[dict[str, str]]]:
    """Return a function that puts one value into every field, for each of the values."""
    found = list(values)

    def make(ext: dict[str, str]) -> Iterator[dict[str, str]]:
        for value in found:
            yield dict.fromkeys(ext, value)

    return make


def _as_it_is(ext: dict[str, str]) -> list[dict[str, str]]:
    return [ext]


def _empty(ext: dict[str, str]) -> list[dict[str, str]]:
    return [{}]


def _one_wrong(ext: dict[str, str]) -> Iterator[dict[str, str]]:
    """Yield sound fields with one of them wrong: the others let a request come further."""
    for name in ext:
        yield {**ext, name: DIGITS}
        yield {**ext, name: "a/b"}


CASES.update({
    "every request code with numbers of 5,000 digits": _every(_each([DIGITS])),
    "every request code with negative and huge numbers": _every(_each(["-1", "2147483647", "9223372036854775807"])),
    "every request code with one field wrong": _every(_one_wrong),
    "every request code with no field at all": _every(_empty),
    "every request code one-way": _every(_as_it_is, b"{}", oneway=True),
    "every request code with fields of a path": _every(_each(["../../outside", "a/b"])),
    "every request code with NUL and newline": _every(_each(["a\x00b", "a\nb"])),
    "every request code with names of 4,000 characters": _every(_each(["a" * 4000])),
    "every request code with a lone surrogate": _every(_each(["\ud800"])),
    "every request code with a body that is no JSON": _every(_as_it_is, b"\xff" * 1000),
    "every request code with a body of brackets": _every(_as_it_is, b"[" * 100_000),
    "every request code with an empty object": _every(_as_it_is, b"{}"),
    "every request code with a body of null": _every(_as_it_is, b"null"),
    "every request code with a body of nested objects": _every(_as_it_is, b'{"a":' * 5_000 + b"1" + b"}" * 5_000),
    "every request code with a body of digits": _every(_as_it_is, b"9" * 50_000),
    "every request code with a body of lines": _every(_as_it_is, b"a=b\n" * 20_000),
})  # fmt: skip


@case("every request code with a body of eight megabytes")
def large_bodies(attacker: Attacker) -> None:
    body = b'{"a":"' + b"x" * (8 << 20) + b'"}'
    for code in _CODES:
        if code not in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2):
            line = attacker.line()
            line.tell(code, sound_ext(code), body)
            line.ask(RequestCode.GET_MAX_OFFSET, {"topic": "witness", "queueId": "0"})
            line.close()


@case("every request code with a list of a million numbers in each key")
def wide_bodies(attacker: Attacker) -> None:
    numbers = b",".join([b"1"] * 400_000)
    body = b'{"mqSet":[%s],"consumerDataSet":[%s],"topicConfigList":[%s]}' % (numbers, numbers, numbers)
    for code in _CODES:
        line = attacker.line()
        line.tell(code, sound_ext(code), body)
        line.ask(RequestCode.GET_MAX_OFFSET, {"topic": "witness", "queueId": "0"})
        line.close()
