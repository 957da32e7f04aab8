"""An acknowledgement of the five fields that clients write is answered as one that takes the general way."""

from __future__ import annotations

import random

from aerobee.broker.config import BrokerConfig
from aerobee.hot.wire.digits import whole_text
from aerobee.model.numbers import parse_int
from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import request
from aerobee.testing.brokerkit import BrokerKit, KitClient, run_broker
from aerobee.testing.storekit import draft

ROUNDS = 1_500
NUMBERS = (
    "0", "1", "2", "7", "", " ", "-1", "+1", "007", "1.0", "1e2", "x", "\u0661", "1_0", "2147483647", "2147483648",
    "9" * 18, "9" * 19, "9223372036854775807", "9223372036854775808", "9" * 5_000, "0" * 30 + "1", "true",
)  # fmt: skip
HANDLES = (
    "0 {at} 30000 0 0 broker-a 0 0", "0 {at} 30000 0", "0 {at} 30000", "", " ", "0 -1 30000 0 0 b 0 0",
    "0 +5 007 1 0 b", "0 5 30000 2147483648 0 b", "x y z w", "0  5 30000 0", "0 5 30000 999 0 broker-a 0 0 77",
    "0 " + "5" * 5_000 + " 1 1",
    "0 9223372036854775807 9223372036854775807 0", "0 9223372036854775808 1 0", "0 \u0661 1 0",
)  # fmt: skip


def test_both_ways_answer_the_same() -> None:
    pick = random.Random(7)

    async def told(client: KitClient, number: int, ext: dict[str, str]) -> tuple[object, ...]:
        answer = await client.call(request(RequestCode.ACK_MESSAGE, opaque=number, ext=ext))
        return answer.code, answer.remark, answer.ext, answer.body

    async def main(kit: BrokerKit) -> None:
        kit.state.catalog.put_topic(TopicConfig("T", 2, 2))
        for _ in range(3):
            kit.store.append([draft(b"one", b"T")])
        await kit.pass_time(1.0)
        client, codes = kit.connect(), set[object]()
        at = kit.clock.now_ms()
        for number in range(ROUNDS):
            ext = {
                "consumerGroup": pick.choice(("G", "G", "", "ü", "g" * 300)),
                "topic": pick.choice(("T", "T", "T", "", "none", "ü")),
                "queueId": pick.choice(("0",) * 12 + NUMBERS),
                "offset": pick.choice(("0", "1") * 6 + NUMBERS),
                "extraInfo": pick.choice(HANDLES[:1] * 6 + HANDLES).replace("{at}", str(at)),
            }
            if pick.random() < 0.2:
                del ext[pick.choice(sorted(ext))]
            short = await told(client, number * 2 + 1, ext)
            # One field more, of which nobody knows, makes it general.
            assert short == await told(client, number * 2 + 2, {**ext, "other": "x"}), ext
            codes.add(short[0])
        assert len(codes) >= 4, codes

    run_broker(main, config=BrokerConfig(broker_name="broker-a", auto_create_subscription_group=True))


def test_a_whole_number_is_that_of_the_parser_or_left_to_it() -> None:
    for text in (*NUMBERS, *map(str, range(200)), "9" * 17):
        found = whole_text(text)
        if found < 0:
            assert not (text.isascii() and text.isdigit() and len(text) <= 18)
            continue
        assert found == parse_int(text)
