"""Records inside of messages: a body that holds a whole record with its checksum, and requests that name its place."""

from __future__ import annotations

from collections.abc import Iterator

from aerobee.hot.log.record import Draft, encode_records
from aerobee.model.numbers import parse_int
from aerobee.protocol.codes import RequestCode
from aerobee.testing.hostile.attacker import Attacker, Line
from aerobee.testing.hostile.requests import case, end_ext, place_of, refused, send

_HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
# The bytes before the body in a record with addresses of four bytes.
_BEFORE_BODY = 88
_TRIES = 60


def _forged(line: Line, topic: bytes, properties: bytes, origin: int = 0) -> Iterator[int]:
    """Yield places in the log of records that were never sent as such. `origin` is the half that they claim to copy.

    Others write too, so the place is guessed from the message before, until the guess is right.
    """
    found = 0
    for _ in range(_TRIES):
        first = send(line, b"x", topic="forge")
        assert first is not None and first.code == 0, first
        # The next message follows directly. It has the size of the same send before.
        second = send(line, b"x", topic="forge")
        assert second is not None and second.code == 0, second
        size = place_of(second) - place_of(first)
        inner_at = place_of(second) + size + _BEFORE_BODY
        draft = Draft(topic, 0, 0, 0, 1, _HOST, _HOST, 0, origin, b"forged", properties, 0, "", "F")
        draft.queue_offset = 0
        body = encode_records([draft], inner_at, 1_700_000_000_000, True)
        third = send(line, body, topic="forge")
        assert third is not None and third.code == 0, third
        if place_of(third) + _BEFORE_BODY == inner_at:
            yield inner_at
            found += 1
            if found == 2:
                return


@case("a record in a message's body, looked up by its place")
def viewed(attacker: Attacker) -> None:
    line = attacker.line()
    for place in _forged(line, b"forge", b"UNIQ_KEY\x01F\x02"):
        refused(line.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(place)}), "a forged record as an answer")


@case("a half message in a message's body, as the copy of another's transaction")
def committed(attacker: Attacker) -> None:
    line, victim = attacker.line(), attacker.line()
    properties = "UNIQ_KEY\x01V\x02TRAN_MSG\x01true\x02PGROUP\x01victims\x02"
    half = send(victim, b"genuine", topic="halves", properties=properties, sys_flag="4")
    assert half is not None and half.code == 0, half
    place = place_of(half)
    told = b"UNIQ_KEY\x01F\x02TRAN_MSG\x01true\x02PGROUP\x01shop\x02REAL_QID\x010\x02"
    told += b"REAL_TOPIC\x01halves\x02"
    for forged in _forged(line, b"RMQ_SYS_TRANS_HALF_TOPIC", told, place or 1):
        ext = end_ext(forged, 0, 8, transactionId="F")
        refused(line.ask(RequestCode.END_TRANSACTION, ext), "a forged half message")
    queue_offset = parse_int(half.ext["queueOffset"])
    ended = victim.ask(RequestCode.END_TRANSACTION, end_ext(place, queue_offset, 12, "victims", transactionId="V"))
    assert ended is not None and ended.code == 0, "the transaction was ended by somebody else"


@case("a record in a message's body, sent back for a retry")
def sent_back(attacker: Attacker) -> None:
    line = attacker.line()
    properties = b"UNIQ_KEY\x01F\x02RETRY_TOPIC\x01a/b\x02REAL_QID\x01" + b"9" * 5000 + b"\x02"
    for place in _forged(line, b"forge", properties):
        ext = {"offset": str(place), "group": "forgers", "delayLevel": "1", "maxReconsumeTimes": "3"}
        refused(line.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext), "a forged record for a retry")
