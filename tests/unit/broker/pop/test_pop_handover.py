"""Checkpoints and acknowledgements that an Apache broker left in its revive topic (the bodies are its own)."""

from __future__ import annotations

from aerobee.hot.log.properties import encode_properties
from aerobee.hot.log.record import Draft
from aerobee.model.topic import TopicConfig
from aerobee.testing.brokerkit import BrokerKit, run_broker
from aerobee.testing.popkit import bodies, store, with_topic
from aerobee.testing.storekit import HOST, small_config

ASYNC = small_config(segment=1 << 20, sync=False)
REVIVE = b"rmq_sys_REVIVE_LOG_DefaultCluster"


def _say(kit: BrokerKit, tag: str, body: str) -> None:
    properties = encode_properties({"TAGS": tag})
    kit.store.append([Draft(REVIVE, 0, 0, 0, 1, HOST, HOST, 0, 0, body.encode(), properties, 0, "", "")])


def test_apache_to_ours() -> None:
    """Ten popped, five acknowledged: the other five come at their time, once; also where a restart comes between."""

    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        kit.state.catalog.put_topic(TopicConfig(REVIVE.decode(), 8, 8))
        store(kit, 12)
        kit.state.offsets.table["T@G"] = {0: 10}
        now = kit.clock.now_ms()
        head = '"bn":"broker-a","c":"G"'
        _say(
            kit, "ck",
            f'{{"bm":1,{head},"d":[0,1,2,3,4,5,6,7,8,9],"it":6000,"n":10,"pt":{now},"q":0,"reviveTime":{now + 6000},'
            '"ro":0,"so":0,"sp":false,"t":"T"}',
        )  # fmt: skip
        _say(kit, "ack", f'{{"ao":3,{head},"pt":{now},"q":0,"so":0,"t":"T"}}')
        _say(kit, "bAck", f'{{"ao":-1,"aol":[4,5],{head},"pt":{now},"q":0,"so":0,"t":"T"}}')
        await kit.pass_time(6, 0.1)
        again = BrokerKit(kit.store.disk.kill(), kit.clock, None, ASYNC)  # type: ignore[attr-defined]
        _say(again, "ack", f'{{"ao":9,{head},"pt":{now},"q":0,"so":0,"t":"T"}}')
        assert await bodies(again) == [b"10", b"11"]
        await again.pass_time(5, 0.1)
        assert sorted(await bodies(again)) == [b"1", b"2", b"6", b"7", b"8"]
        await again.pass_time(6, 0.1)
        last = BrokerKit(again.store.disk.kill(), again.clock, None, ASYNC)  # type: ignore[attr-defined]
        await last.pass_time(8, 0.1)
        assert last.broker.pop.handover.taken_over == 0
        last.close()

    run_broker(main, store_config=ASYNC, close=False)


def test_what_is_no_checkpoint() -> None:
    async def main(kit: BrokerKit) -> None:
        with_topic(kit)
        for body in ("", "{", "[]", '{"c":1}', '{"bm":0,"c":"G","t":"T","q":-1,"so":-5,"pt":0,"n":99999999}'):
            _say(kit, "ck", body or "x")
        await kit.pass_time(5, 0.1)
        assert kit.broker.pop.handover.taken_over == 0
        assert await bodies(kit) == []

    run_broker(main, store_config=ASYNC)
