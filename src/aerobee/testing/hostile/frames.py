"""Cases of connections, frames and greetings: bytes that are no requests, and peers that do not read or answer."""

from __future__ import annotations

import json

from aerobee.model.numbers import parse_int
from aerobee.protocol.codes import RequestCode
from aerobee.testing.hostile.attacker import Attacker, frame_of
from aerobee.testing.hostile.requests import case, heartbeat, make_topic, pull_ext, send, send_ext, topic_ext

_HEADERS = (
    b"[" * 60_000, b'{"code":10,"extFields":' + b'{"a":' * 20_000, b'{"code":' + b"9" * 60_000 + b"}",
    b'{"code":10,"extFields":{' + b",".join(b'"k%d":"v"' % n for n in range(20_000)) + b'},"flag":0,"opaque":1}',
    b'{"code":310,"extFields":{"b":"' + b"\\ud800" * 5_000 + b'"},"flag":0,"opaque":1}', b"\xff" * 60_000,
    b'{"code":310,"code":11,"opaque":1,"flag":0}', b"null", b"", b'{"code":1e999}',
    b'{"opaque":' + b"9" * 5000 + b',"code":10}',
    b'{"code":34,"flag":0,"opaque":1,"remark":"' + b"r" * 1_000_000 + b'"}',
    b'{"code":34,"version":' + b"9" * 400 + b"}",
    b'{"code":34,"flag":0,"opaque":1,"language":"' + b"L" * 100_000 + b'"}',
)  # fmt: skip
_BEGINNINGS = (
    b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x00", b"\x00\x00\x00\x04\xff\xff\xff\xff",
    b"\x00\x00\x00\x08\x00\x00\x00\x20", b"\x00\x00\x00\x05\x01\x00\x00\x01x", b"GET / HTTP/1.1\r\n\r\n",
    b"PROXY TCP4 1.1.1.1 " + b"9" * 200, b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff", b"\x16\x03\x01\xff\xff",
)  # fmt: skip


@case("three hundred idle connections")
def idle(attacker: Attacker) -> None:
    for line in [attacker.line() for _ in range(300)]:
        line.write(b"\x00")


@case("two thousand connections that come and go")
def coming_and_going(attacker: Attacker) -> None:
    for number in range(2_000):
        line = attacker.line()
        if number % 3 == 0:
            line.write(line.frame(RequestCode.SEND_MESSAGE_V2, send_ext(topic="gone"), b"x"))
        if number % 2:
            line.reset()
        else:
            line.close()


@case("frames that are cut off, at every length")
def cut_off(attacker: Attacker) -> None:
    whole = attacker.line().frame(RequestCode.SEND_MESSAGE_V2, send_ext(), b"body")
    for size in range(0, len(whole), 3):
        attacker.line().write(whole[:size])


@case("frames that claim sixteen megabytes and send nothing more")
def claims(attacker: Attacker) -> None:
    for _ in range(200):
        attacker.line().write(b"\x00\xff\xff\xff\x00\x00\x00\x10" + b"{")


@case("sixty connections with fifteen megabytes each of a frame that is never finished")
def unfinished(attacker: Attacker) -> None:
    piece = b"\x00\xff\xff\xf0\x00\x00\x00\x10" + b"{" * 15_000_000
    for line in [attacker.line() for _ in range(60)]:
        line.write(piece)


@case("wrong lengths")
def lies(attacker: Attacker) -> None:
    for head in _BEGINNINGS:
        for namesrv in (False, True):
            attacker.line(namesrv=namesrv).write(head * 10)


@case("answers nobody asked for")
def unasked(attacker: Attacker) -> None:
    line = attacker.line()
    for opaque in (0, 1, -1, 2**31 - 1):
        line.write(frame_of(0, {"a": "b"}, b"x", opaque=opaque, flag=1))
        line.write(frame_of(0, {"a": "b"}, b"x", opaque=opaque, flag=1, codec=1))
        line.write(frame_of(RequestCode.SEND_MESSAGE_V2, send_ext(), b"x", opaque=opaque, flag=3))
    line.ask(RequestCode.GET_BROKER_RUNTIME_INFO)


@case("headers that are deep, long, or no JSON")
def headers(attacker: Attacker) -> None:
    for header in _HEADERS:
        frame = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
        for namesrv in (False, True):
            line = attacker.line(namesrv=namesrv)
            line.write(frame)
            line.write(line.frame(RequestCode.HEART_BEAT))


@case("a header with sixty thousand fields, in JSON and in bytes")
def many_fields(attacker: Attacker) -> None:
    fields = {f"k{n}": "v" for n in range(60_000)}
    for namesrv in (False, True):
        for codec in (0, 1):
            for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE, RequestCode.GET_MAX_OFFSET):
                line = attacker.line(namesrv=namesrv)
                line.tell(code, fields, b"x", codec=codec)
                line.ask(RequestCode.GET_BROKER_RUNTIME_INFO)


@case("eighty connections that all ask for much at once")
def many_ask(attacker: Attacker) -> None:
    beat = b'{"clientID":"c","producerDataSet":[' + b'{"groupName":"p"},' * 20_000 + b'{"groupName":"p"}]}'
    lines = [attacker.line() for _ in range(80)]
    for line in lines:
        line.write(b"".join(line.frame(RequestCode.HEART_BEAT, {}, beat) for _ in range(3)))
    for line in lines:
        line.ask(RequestCode.GET_BROKER_RUNTIME_INFO)


@case("a reader that never reads")
def never_reads(attacker: Attacker) -> None:
    line = attacker.line()
    for _ in range(3_000):
        if not line.write(line.frame(RequestCode.GET_ALL_TOPIC_CONFIG)):
            break


@case("one byte at a time, from fifty connections")
def slowly(attacker: Attacker) -> None:
    lines = [attacker.line() for _ in range(50)]
    whole = lines[0].frame(RequestCode.HEART_BEAT, {}, heartbeat())
    for byte in whole[:200]:
        for line in lines:
            line.write(bytes([byte]))


@case("a frame of sixteen megabytes in pieces of a hundred bytes")
def in_pieces(attacker: Attacker) -> None:
    whole = attacker.line().frame(RequestCode.HEART_BEAT, {}, b" " * (8 << 20))
    line = attacker.line()
    for at in range(0, 2_000_000, 100):
        line.write(whole[at : at + 100])
    line.write(whole[2_000_000:])


@case("ten thousand pulls held at once")
def held(attacker: Attacker) -> None:
    make_topic(attacker.line(), "held", "8")
    for connection in range(5):
        line = attacker.line()
        line.ask(RequestCode.HEART_BEAT, {}, heartbeat(group=f"g{connection}", topic="held"))
        for number in range(2_000):
            ext = pull_ext(topic="held", group=f"g{connection}", queue_id=str(number % 8), hold_ms="30000")
            if not line.tell(RequestCode.PULL_MESSAGE, ext):
                break


@case("a message that wakes five thousand pulls")
def woken(attacker: Attacker) -> None:
    admin = attacker.line()
    make_topic(admin, "woken", "1")
    lines = [attacker.line() for _ in range(10)]
    for number, line in enumerate(lines):
        line.ask(RequestCode.HEART_BEAT, {}, heartbeat(group=f"g{number}", topic="woken"))
        for _ in range(500):
            line.tell(RequestCode.PULL_MESSAGE, pull_ext(topic="woken", group=f"g{number}", hold_ms="30000"))
    for _ in range(3):
        send(admin, b"x" * 100_000, topic="woken")


@case("pulls held on a topic that is deleted and made again")
def held_on_deleted(attacker: Attacker) -> None:
    admin, reader = attacker.line(), attacker.line()
    for number in range(50):
        make_topic(admin, "deleted", "2")
        for queue_id in ("0", "1"):
            reader.tell(RequestCode.PULL_MESSAGE, pull_ext(topic="deleted", queue_id=queue_id, hold_ms="20000"))
        send(admin, b"x", topic="deleted")
        reader.tell(RequestCode.PULL_MESSAGE, pull_ext(topic="deleted", hold_ms="20000"))
        admin.tell(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "deleted"}, oneway=number % 2 == 0)
    admin.ask(RequestCode.GET_BROKER_RUNTIME_INFO)


@case("greetings of TLS that are begun and not finished")
def half_open_tls(attacker: Attacker) -> None:
    hello = bytes.fromhex("1603010200010001fc0303") + b"\x00" * 507
    for size in (1, 2, 3, 5, 11, 200, len(hello)):
        for namesrv in (False, True):
            for _ in range(20):
                attacker.line(namesrv=namesrv).write(hello[:size])
    attacker.line().write(hello + b"\x16\x03\x01" + b"\xff" * 100_000)


@case("proxy headers of every kind")
def proxy_headers(attacker: Attacker) -> None:
    signature = b"\r\n\r\n\x00\r\nQUIT\n"
    for head in (
        b"PROXY UNKNOWN\r\n", b"PROXY TCP4 999.1.1.1 1.1.1.1 1 1\r\n", b"PROXY TCP6 ::1 ::1 99999 -1\r\n",
        b"PROXY TCP4 1.1.1.1 1.1.1.1 " + b"9" * 80 + b" 1\r\n", b"PROXY " + b"\x00" * 100 + b"\r\n",
        signature + b"\x21\x11\x00\x0c" + b"\x00" * 12, signature + b"\x21\x31\x00\xd8" + b"\xff" * 216,
        signature + b"\x20\x00\xff\xff" + b"\xff" * 65_535, signature + b"\x21\x11\x00\x00", b"PROXY TCP4 1.1.1.1",
    ):  # fmt: skip
        for namesrv in (False, True):
            line = attacker.line(namesrv=namesrv)
            line.write(head)
            line.write(line.frame(RequestCode.GET_BROKER_CLUSTER_INFO))
            line.write(head * 3)


@case("peers that close half of their connection and go on listening")
def half_closed(attacker: Attacker) -> None:
    for number in range(100):
        line = attacker.line()
        line.write(line.frame(RequestCode.PULL_MESSAGE, pull_ext(topic="held", hold_ms="30000")))
        line.write(line.frame(RequestCode.SEND_MESSAGE_V2, send_ext(topic="half-closed"), b"x%d" % number))
        line.half_close()


@case("every request on the port for urgent requests")
def fast_port(attacker: Attacker) -> None:
    host, _, port = attacker.broker.rpartition(":")
    line = attacker.line_to(f"{host}:{parse_int(port) - 2}")
    if line is None:
        return
    for code, ext in (
        (RequestCode.PULL_MESSAGE, pull_ext()),
        (RequestCode.SEND_MESSAGE_V2, send_ext(topic="RMQ_SYS_TRANS_OP_HALF_TOPIC")),
        (RequestCode.HEART_BEAT, {}), (RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("a/b")),
    ):  # fmt: skip
        if line.ask(code, ext, heartbeat()) is None:
            line = attacker.line_to(attacker.broker) or line


@case("administrators who want no answer")
def oneway_admin(attacker: Attacker) -> None:
    line = attacker.line()
    for number in range(200):
        line.tell(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(f"oneway-{number % 10}"), oneway=True)
        group = json.dumps({"groupName": f"oneway-{number % 10}"}).encode()
        line.tell(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group, oneway=True)
        line.tell(RequestCode.GET_TOPIC_STATS_INFO, {"topic": f"oneway-{number % 10}"}, oneway=True)
        line.tell(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false", "timeoutMillis": "1"}, oneway=True)
        line.tell(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": f"oneway-{number % 10}"}, oneway=True)
        line.tell(
            RequestCode.DELETE_SUBSCRIPTIONGROUP,
            {"groupName": f"oneway-{number % 10}", "cleanOffset": "true"},
            oneway=True,
        )
        line.tell(RequestCode.UPDATE_BROKER_CONFIG, {}, b"x=y", oneway=True)
    line.ask(RequestCode.GET_BROKER_RUNTIME_INFO)


@case("a hundred whole tables at once")
def whole_tables(attacker: Attacker) -> None:
    writer = attacker.line()
    for number in range(1_000):
        writer.tell(RequestCode.SEND_MESSAGE_V2, send_ext(topic=f"table-{number}"), b"x")
    writer.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    lines = [attacker.line() for _ in range(10)]
    for line in lines:
        for code in (
            RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_ALL_PRODUCER_INFO,
            RequestCode.GET_TIMER_METRICS, RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_ALL_DELAY_OFFSET,
            RequestCode.GET_BROKER_CONFIG, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        ):  # fmt: skip
            line.tell(code)
    for line in lines:
        line.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
