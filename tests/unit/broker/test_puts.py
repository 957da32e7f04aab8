"""The puts of one tick: written together, judged one by one."""

from __future__ import annotations

from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers.send import SendMessageRequestHeaderV2
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.storekit import read_queue


def send(body: bytes, opaque: int, properties: str = "UNIQ_KEY\x01K\x02") -> Command:
    header = SendMessageRequestHeaderV2(
        producer_group="P",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties=properties,
    )
    return request(RequestCode.SEND_MESSAGE_V2, header, body, opaque=opaque)


def test_an_illegal_message_does_not_refuse_those_of_others_in_its_tick() -> None:
    async def main(kit: BrokerKit) -> None:
        await kit.connect().call(send(b"creates the topic", 1))
        good, bad, last = kit.connect(), kit.connect(), kit.connect()
        too_long = "UNIQ_KEY\x01K\x02a\x01" + "b" * 32_740 + "\x02"
        good.send(send(b"one", 1))
        bad.send(send(b"two", 1, too_long))
        last.send(send(b"three", 1))
        assert [answer.code for answer in await good.answers()] == [ResponseCode.SUCCESS]
        assert [answer.code for answer in await bad.answers()] == [ResponseCode.MESSAGE_ILLEGAL]
        assert [answer.code for answer in await last.answers()] == [ResponseCode.SUCCESS]
        bodies = [record.body for record in read_queue(kit.store, b"T", 0)]
        assert bodies == [b"creates the topic", b"one", b"three"]

    run_broker(main)
