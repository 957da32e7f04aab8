"""How much of its journal POP reads at a start: pictures bound it, at whatever moment the process is killed."""

from __future__ import annotations

from aerobee.broker.pop import Key
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.disk import RecordingDisk
from aerobee.testing.storekit import small_config

_PICTURE_FROM = 4 << 20
_TEXT = b'{"c":1}' + b" " * 40_000


def test_pictures_bound_what_a_start_reads() -> None:
    """A kill leaves at most the 4 MiB after which a picture is taken, and what came while it was saved."""
    config = small_config(segment=32 << 20, sync=False, max_message_size=1 << 20)

    async def main(kit: BrokerKit) -> None:
        disk, ledger = kit.store.disk, kit.broker.pop.ledger
        assert isinstance(disk, RecordingDisk)
        read = []
        for number in range(330):
            ledger.writer.order(Key("T", "G", number % 3), _TEXT, kit.clock.now_ms())
            ledger.said()
            await kit.pass_time(0.05, 0.05)
            if number % 10 == 9:
                again = BrokerKit(disk.kill(), kit.clock, None, config)
                assert len(again.broker.pop.table.orders) == 3
                read.append(again.broker.pop.ledger.unpictured)
                again.close()
        assert 330 * len(_TEXT) > 3 * _PICTURE_FROM
        assert _PICTURE_FROM // 2 < max(read) < _PICTURE_FROM + 10 * len(_TEXT)
        assert read[-1] < max(read), "pictures were saved"

    run_broker(main, store_config=config, close=False)
