"""The machine of HTTP/2: floods, windows and limits, each at its edge. The rules of frames are h2spec's."""

import time

import pytest

from aerobee.hot.h2 import frames
from aerobee.hot.h2.frames import PREFACE, frame, word
from aerobee.hot.h2.hpack import HpackDecoder, literal
from aerobee.protocol import grpc
from aerobee.protocol import http2streams as http2
from aerobee.protocol.grpc import GrpcConnection, prefixed
from aerobee.protocol.http2 import Http2Connection

BLOCK = b"\x83\x86" + literal(b":path", b"/s/Call") + literal(b"content-type", b"application/grpc")
BEGIN = PREFACE + frame(frames.SETTINGS, 0, 0)


def machine() -> Http2Connection:
    one = Http2Connection(100.0)
    assert one.receive(BEGIN, 100.0) == []
    one.output()
    return one


def grpc_machine() -> GrpcConnection:
    one = GrpcConnection(100.0)
    one.receive(BEGIN, 100.0)
    one.http.output()
    return one


def head(number: int, *, ends: bool = False, block: bytes = BLOCK) -> bytes:
    return frame(frames.HEADERS, frames.END_HEADERS | (frames.END_STREAM if ends else 0), number, block)


def parsed(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Kind, flags, stream and payload of every frame."""
    found = []
    while data:
        size = int.from_bytes(data[:3], "big")
        found.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + size]))
        data = data[9 + size :]
    return found


def goaway(one: Http2Connection) -> int:
    kind, _, _, payload = parsed(one.output())[-1]
    assert kind == frames.GOAWAY
    return int.from_bytes(payload[4:8], "big")


@pytest.mark.parametrize(
    ("flood", "allowed"),
    [
        (frame(frames.PING, 0, 0, bytes(8)), http2.PINGS_MAX),
        (frame(frames.SETTINGS, 0, 0), http2.SETTINGS_MAX - 1),
        (frame(frames.SETTINGS, frames.ACK, 0), http2.SETTINGS_MAX - 1),
        (frame(frames.PRIORITY, 0, 1, bytes(5)), http2.IDLE_FRAMES_MAX),
        (frame(frames.WINDOW_UPDATE, 0, 0, word(1)), http2.IDLE_FRAMES_MAX),
        (frame(77, 0, 0, b"unknown"), http2.IDLE_FRAMES_MAX),
    ],
    ids=["ping", "settings", "settings ack", "priority", "window updates", "unknown"],
)
def test_a_flood_of_frames_without_work_ends_the_connection(flood: bytes, allowed: int) -> None:
    one = machine()
    one.receive(flood * allowed, 100.0)
    assert one.error is None
    one.receive(flood * (http2.PINGS_MAX * 12), 100.0)
    assert one.error is not None and one.error.code == frames.ENHANCE_YOUR_CALM
    assert goaway(one) == frames.ENHANCE_YOUR_CALM
    assert one.receive(head(1), 100.0) == []


def test_as_many_pings_come_again_a_second_later() -> None:
    one, ping = machine(), frame(frames.PING, 0, 0, bytes(8))
    for second in range(5):
        one.receive(ping * (http2.PINGS_MAX - 5), 100.0 + second)
    assert one.error is None


def test_rapid_reset_ends_the_connection() -> None:
    """CVE-2023-44487: a stream is opened and reset at once, again and again."""
    one = machine()
    for number in range(1, 2_001, 2):
        one.receive(head(number) + frame(frames.RST_STREAM, 0, number, word(8)), 100.0)
        assert not one.streams or one.error
        if one.error is not None:
            break
    assert number < 2 * http2.RESETS_MAX + 5
    assert goaway(one) == frames.ENHANCE_YOUR_CALM


def test_a_client_that_gives_up_one_call_of_two_is_no_attacker() -> None:
    one = grpc_machine()
    for number in range(1, 8_001, 4):
        one.receive(head(number) + frame(frames.DATA, frames.END_STREAM, number, prefixed(b"x")), 100.0)
        one.answer(one.calls[0], b"y")
        one.receive(head(number + 2) + frame(frames.RST_STREAM, 0, number + 2, word(8)), 100.0)
    assert one.http.error is None


def test_continuation_flood_ends_the_connection() -> None:
    """CVE-2024-27316: a header block that never ends."""
    one = machine()
    one.receive(frame(frames.HEADERS, 0, 1, BLOCK), 100.0)
    one.receive(frame(frames.CONTINUATION, 0, 1, b"") * http2.CONTINUATIONS_MAX, 100.0)
    assert one.error is None
    one.receive(frame(frames.CONTINUATION, 0, 1, b""), 100.0)
    assert goaway(one) == frames.ENHANCE_YOUR_CALM


def test_a_header_block_has_a_largest_size() -> None:
    one = machine()
    one.receive(frame(frames.HEADERS, 0, 1, bytes(16_384)) + frame(frames.CONTINUATION, 0, 1, bytes(16_384)), 100.0)
    assert one.error is None
    one.receive(frame(frames.CONTINUATION, 0, 1, b"\x00"), 100.0)
    assert goaway(one) == frames.ENHANCE_YOUR_CALM


def test_hpack_bomb_is_neither_kept_nor_served() -> None:
    """One field of 4,000 bytes in the table, named 16,000 times: 64 MB out of 20 KB."""
    one = grpc_machine()
    bomb = b"\x40\x01x" + b"\x7f\xa1\x1e" + b"v" * 4000
    block = BLOCK + bomb + b"\xbe" * 12_000
    first = frame(frames.HEADERS, frames.END_STREAM, 1, block[:16_384])
    events = one.receive(first + frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[16_384:]), 100.0)
    assert events == []
    answers = parsed(one.http.output())
    fields = {f.name: f.value for f in HpackDecoder(1 << 20).decode(answers[0][3])}
    assert fields[b"grpc-status"] == b"8"
    # The connection goes on, with the table that the client has, too.
    assert len(one.receive(head(3, block=BLOCK + b"\xbe"), 100.0)) == 1
    assert one.calls[0].metadata[b"x"] == b"v" * 4000


def test_streams_beyond_the_limit_are_refused_and_then_the_connection_ends() -> None:
    one = machine()
    for number in range(1, 2 * http2.STREAMS_MAX + 1, 2):
        one.receive(head(number), 100.0)
    assert len(one.streams) == http2.STREAMS_MAX
    one.output()
    one.receive(head(2 * http2.STREAMS_MAX + 1), 100.0)
    assert parsed(one.output()) == [(frames.RST_STREAM, 0, 2 * http2.STREAMS_MAX + 1, word(frames.REFUSED_STREAM))]
    for number in range(2 * http2.STREAMS_MAX + 3, 200_000, 2):
        one.receive(head(number), 100.0)
        if one.error is not None:
            break
    assert number < 4 * http2.STREAMS_MAX + 10 and goaway(one) == frames.ENHANCE_YOUR_CALM


def test_nothing_is_sent_beyond_the_windows_of_the_peer() -> None:
    one = grpc_machine()
    one.receive(frame(frames.SETTINGS, 0, 0, b"\x00\x04" + word(10)), 100.0)
    one.receive(head(1) + frame(frames.DATA, frames.END_STREAM, 1, prefixed(b"x")), 100.0)
    one.http.output()
    one.answer(one.calls[0], b"y" * 100_000)
    sent = [part for kind, _, _, part in parsed(one.http.output()) if kind == frames.DATA]
    assert sum(map(len, sent)) == 10 and one.http.queued == 100_005 - 10
    one.receive(frame(frames.WINDOW_UPDATE, 0, 1, word(1)), 100.0)
    assert [len(part) for _, _, _, part in parsed(one.http.output())] == [1]
    one.receive(frame(frames.WINDOW_UPDATE, 0, 1, word(1 << 20)), 100.0)
    # 65,535 bytes of the connection's window, of which 11 are used.
    assert sum(len(part) for _, _, _, part in parsed(one.http.output())) == 65_535 - 11
    one.receive(frame(frames.WINDOW_UPDATE, 0, 0, word(1 << 20)), 100.0)
    *rest, (kind, flags, _, trailers) = parsed(one.http.output())
    assert sum(len(part) for _, _, _, part in rest) == 100_005 - 65_535
    assert (kind, flags) == (frames.HEADERS, frames.END_HEADERS | frames.END_STREAM) and b"grpc-status" in trailers
    assert one.http.queued == 0 and not one.http.streams


def test_settings_that_change_windows_many_times_cost_one_change() -> None:
    """A frame has room for 2,730 of them, and a connection 1,000 streams."""
    one = machine()
    for number in range(1, 2_000, 2):
        one.receive(head(number), 100.0)
    assert len(one.streams) == http2.STREAMS_MAX

    def took_s(count: int) -> float:
        times = []
        for turn in range(5):
            window = b"\x00\x04" + word(1_000 + turn)
            data = frame(frames.SETTINGS, 0, 0, (b"\x00\x04" + word(7)) * (count - 1) + window)
            began_s = time.perf_counter()
            one.receive(data, 100.0)
            times.append(time.perf_counter() - began_s)
            assert one.error is None
            assert {stream.send_window for stream in one.streams.values()} == {1_000 + turn}
        return min(times)

    assert took_s(2_730) < 200 * took_s(1)


def test_a_reset_frees_what_waits_for_a_window() -> None:
    one = grpc_machine()
    one.receive(frame(frames.SETTINGS, 0, 0, b"\x00\x04" + word(0)), 100.0)
    one.receive(head(1) + frame(frames.DATA, frames.END_STREAM, 1, prefixed(b"x")), 100.0)
    one.answer(one.calls[0], b"y" * 1_000_000)
    assert one.http.queued > 1_000_000
    events = one.receive(frame(frames.RST_STREAM, 0, 1, word(8)), 100.0)
    assert [event.kind for event in events] == [grpc.GIVEN_UP] and one.http.queued == 0


def test_a_peer_that_sends_beyond_the_window_is_stopped() -> None:
    one = machine()
    one.receive(head(1), 100.0)
    for _ in range(4):
        one.receive(frame(frames.DATA, 0, 1, bytes(16_384)), 100.0)
    assert (frames.RST_STREAM, 0, 1, word(frames.FLOW_CONTROL_ERROR)) in parsed(one.output())


def test_windows_grow_for_the_messages_that_are_sent_and_no_further() -> None:
    """40 streams announce the largest message each, and 16 MiB are granted at a time; all of them come through."""
    one = grpc_machine()
    size = 4 << 20
    message = prefixed(bytes(size))
    left = {2 * i + 1: message for i in range(40)}
    window = dict.fromkeys(left, frames.WINDOW)
    for number in left:
        one.receive(head(number), 100.0)
    done = []
    while left:
        before = len(done)
        progress = False
        for number in list(left):
            part = min(window[number], 16_384, len(left[number]))
            if not part:
                continue
            progress = True
            window[number] -= part
            data, left[number] = left[number][:part], left[number][part:]
            flags = frames.END_STREAM if not left[number] else 0
            for event in one.receive(frame(frames.DATA, flags, number, data), 100.0):
                if event.kind == grpc.MESSAGE:
                    done.append(len(event.message))
                    one.answer(event.call, b"")
            if not left[number]:
                del left[number]
        for kind, _, number, payload in parsed(one.http.output()):
            if kind == frames.WINDOW_UPDATE and number in window:
                window[number] += int.from_bytes(payload, "big")
        assert one.held <= http2.EXTRA_MAX + 40 * 65_535 and one.http.error is None
        assert progress or len(done) > before
    assert done == [size] * 40 and one.held == 0


def test_a_message_larger_than_allowed_is_refused_by_its_length() -> None:
    one = grpc_machine()
    one.receive(head(1), 100.0)
    length = (grpc.MESSAGE_MAX + 1).to_bytes(4, "big")
    one.receive(frame(frames.DATA, 0, 1, b"\x00" + length), 100.0)
    answer = next(part for kind, _, _, part in parsed(one.http.output()) if kind == frames.HEADERS)
    assert {f.name: f.value for f in HpackDecoder(1 << 20).decode(answer)}[b"grpc-status"] == b"8"


def test_a_compressed_message_is_refused_with_what_is_accepted() -> None:
    one = grpc_machine()
    one.receive(head(1) + frame(frames.DATA, frames.END_STREAM, 1, b"\x01\x00\x00\x00\x01x"), 100.0)
    answer = next(part for kind, _, _, part in parsed(one.http.output()) if kind == frames.HEADERS)
    fields = {f.name: f.value for f in HpackDecoder(1 << 20).decode(answer)}
    assert (fields[b"grpc-status"], fields[b"grpc-accept-encoding"]) == (b"12", b"identity")


@pytest.mark.parametrize(
    ("timeout", "seconds"), [(b"3S", 3.0), (b"100m", 0.1), (b"99999999H", 99999999 * 3600.0), (b"5u", 5e-6)]
)
def test_timeouts(timeout: bytes, seconds: float) -> None:
    one = grpc_machine()
    one.receive(head(1, block=BLOCK + literal(b"grpc-timeout", timeout)), 100.0)
    assert one.calls[0].timeout_s == pytest.approx(seconds)


@pytest.mark.parametrize("timeout", [b"", b"3", b"S", b"999999999S", b"-1S", b"3s", b"1 S"])
def test_a_timeout_that_is_none_is_refused(timeout: bytes) -> None:
    one = grpc_machine()
    assert one.receive(head(1, block=BLOCK + literal(b"grpc-timeout", timeout)), 100.0) == []


def test_after_a_drain_calls_under_way_are_answered_and_no_others() -> None:
    one = grpc_machine()
    one.receive(head(1), 100.0)
    one.http.drain()
    assert parsed(one.http.output()) == [(frames.GOAWAY, 0, 0, word(1) + word(0))]
    assert one.receive(head(3) + frame(frames.DATA, frames.END_STREAM, 3, prefixed(b"x")), 100.0) == []
    events = one.receive(frame(frames.DATA, frames.END_STREAM, 1, prefixed(b"x")), 100.0)
    assert [event.message for event in events] == [b"x"]
    one.answer(events[0].call, b"y")
    assert not one.http.streams and one.http.error is None


@pytest.mark.parametrize("split", ["with the message", "after it", "before everything"])
def test_the_end_of_a_request_is_told_once_and_last(split: str) -> None:
    one = grpc_machine()
    if split == "with the message":
        data = head(1) + frame(frames.DATA, frames.END_STREAM, 1, prefixed(b"x"))
        wanted = [(grpc.CALLED, False), (grpc.MESSAGE, True)]
    elif split == "after it":
        data = head(1) + frame(frames.DATA, 0, 1, prefixed(b"x")) + frame(frames.DATA, frames.END_STREAM, 1)
        wanted = [(grpc.CALLED, False), (grpc.MESSAGE, False), (grpc.HAS_ENDED, True)]
    else:
        data = head(1, ends=True)
        wanted = [(grpc.CALLED, False), (grpc.HAS_ENDED, True)]
    assert [(event.kind, event.ended) for event in one.receive(data, 100.0)] == wanted


def test_any_split_of_the_bytes_gives_the_same_events() -> None:
    data = BEGIN + b"".join(
        head(n) + frame(frames.DATA, frames.END_STREAM, n, prefixed(b"m%d" % n)) for n in range(1, 20, 2)
    )
    for size in (1, 2, 3, 7, 10, 100):
        one = GrpcConnection()
        got = [
            e.message for at in range(0, len(data), size) for e in one.receive(data[at : at + size], 1.0) if e.message
        ]
        assert got == [b"m%d" % n for n in range(1, 20, 2)]
