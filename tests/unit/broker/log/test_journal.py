"""A journal: records are read again from the saved place, and those that cannot be used are set aside."""

from __future__ import annotations

from aerobee.broker.log import Journal
from aerobee.hot.log.record import Record
from aerobee.testing.brokerkit import BrokerKit, run_broker, settle
from aerobee.testing.storekit import draft, small_config

TOPIC = "rmq_sys_a_journal"


def journal_of(kit: BrokerKit, places: dict[str, dict[int, int]], made: list[str]) -> Journal:
    return Journal(TOPIC, "a feature", kit.store, kit.state.puts, places, "key", lambda: made.append(TOPIC))


def test_records_are_read_from_the_saved_place_on() -> None:
    async def main(kit: BrokerKit) -> None:
        places: dict[str, dict[int, int]] = {}
        made: list[str] = []
        journal = journal_of(kit, places, made)
        codes: list[int] = []
        for number in range(5):
            journal.write([draft(b"%d" % number, TOPIC.encode())], lambda code, remark: codes.append(code))
        await settle()
        assert (codes, made, journal.end_offset) == ([0] * 5, [TOPIC] * 5, 5)
        journal.keep(lambda: 3)
        assert places == {}, "the log is not flushed yet"
        await kit.pass_time(20)
        journal.keep(lambda: 99)
        assert places == {"key": {0: 3}}, "what was needed when the log ended there"
        found: list[bytes] = []
        journal.replay(lambda record: found.append(record.body))
        assert (journal.first_offset, found) == (3, [b"3", b"4"])

    run_broker(main, store_config=small_config(sync=False, segment=1 << 20))


def test_a_place_outside_the_queue_is_brought_into_it() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.store.append([draft(b"only", TOPIC.encode())])
        assert journal_of(kit, {"key": {0: 77}}, []).first_offset == 1
        assert journal_of(kit, {"key": {0: -1}}, []).first_offset == 0

    run_broker(main)


def test_what_cannot_be_used_is_set_aside_and_the_rest_is_read() -> None:
    async def main(kit: BrokerKit) -> None:
        kit.store.append([draft(body, TOPIC.encode()) for body in (b"good", b"bad", b"good too")])
        found: list[bytes] = []

        def learn(record: Record) -> None:
            if record.body == b"bad":
                raise ValueError("nonsense")
            found.append(record.body)

        journal_of(kit, {}, []).replay(learn)
        assert found == [b"good", b"good too"]
        assert kit.store.asides.total == 1

    run_broker(main)
