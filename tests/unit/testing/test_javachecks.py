"""The judges of the interop tests find what they are there for."""

from aerobee.testing.javachecks import Event, first_takes_in_order, lost, out_of_order, repeated, send_order_kept


def message(sequence: int, offset: int, queue: int = 0, body: str = "x") -> Event:
    return {
        "event": "message", "topic": "T", "storeHost": "/h:1", "queueId": queue, "queueOffset": offset,
        "sequence": sequence, "bodyHash": body, "msgId": f"id{sequence}",
    }  # fmt: skip


def test_lost_names_what_never_came_or_came_changed() -> None:
    sent = [message(1, 0), message(2, 1), message(3, 2)]
    assert lost(sent, [message(1, 0), message(2, 1, body="other")]) == [2, 3]
    assert lost(sent, sent + sent) == []


def test_repeats_and_order() -> None:
    taken = [message(1, 0), message(2, 1), message(9, 0, queue=1)]
    assert repeated(taken) == [] and out_of_order(taken) == [] and first_takes_in_order(taken)
    again = [*taken, message(2, 1), message(3, 2)]
    assert repeated(again) == [2]
    assert out_of_order(again) == [(("T", "/h:1", 0), 1, 1)]
    assert first_takes_in_order(again)
    assert not first_takes_in_order([message(1, 0), message(3, 2), message(2, 1)])


def test_send_order_compares_sequences_with_places() -> None:
    assert send_order_kept([message(2, 1), message(1, 0)])
    assert not send_order_kept([message(1, 1), message(2, 0)])
