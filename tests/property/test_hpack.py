"""Our HPACK beside the package `hpack`, and our connection beside a client of the package `h2`."""

import contextlib

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import hpack
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.table import HeaderTable
from hypothesis import given
from hypothesis import strategies as st

from aerobee.errors import RemoteProtocolError
from aerobee.hot.h2 import hpack as ours
from aerobee.hot.h2 import huffman
from aerobee.protocol import grpc
from aerobee.protocol.grpc import GrpcConnection, prefixed

NAMES = st.sampled_from([b":path", b"x-mq-client-id", b"te", b"a", b"content-type", b"cookie"]) | st.from_regex(
    rb"[a-z0-9-]{1,40}", fullmatch=True
)
FIELDS = st.lists(st.tuples(NAMES, st.binary(max_size=300)), max_size=12)


def test_tables_are_those_of_the_specification() -> None:
    assert list(zip(REQUEST_CODES, REQUEST_CODES_LENGTH, strict=True)) == huffman._CODES
    assert [(f.name, f.value) for f in ours._STATIC[1:]] == list(HeaderTable.STATIC_TABLE)


@given(st.binary(max_size=200))
def test_huffman_texts_come_back(text: bytes) -> None:
    code = huffman.encode_huffman(text)
    assert huffman.decode_huffman(b"##" + code + b"#", 2, 2 + len(code)) == text


@given(st.lists(st.tuples(FIELDS, st.booleans(), st.sampled_from([None, 0, 60, 200, 4096])), max_size=12))
def test_a_conversation_of_hpack_is_understood(
    blocks: list[tuple[list[tuple[bytes, bytes]], bool, int | None]],
) -> None:
    encoder, decoder = hpack.Encoder(), ours.HpackDecoder(1 << 20)
    for fields, huffman_coded, size in blocks:
        if size is not None:
            encoder.header_table_size = size
        block = encoder.encode(fields, huffman=huffman_coded)
        assert [(f.name, f.value) for f in decoder.decode(block)] == fields
        assert decoder.table_size == encoder.header_table._current_size


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4))
def test_both_decoders_accept_and_refuse_the_same(blocks: list[bytes]) -> None:
    decoder, theirs = ours.HpackDecoder(1 << 20), hpack.Decoder(max_header_list_size=1 << 20)
    for block in blocks:
        try:
            expected = [(bytes(name), bytes(value)) for name, value in theirs.decode(block, raw=True)]
        except Exception:  # noqa: BLE001 - theirs raises errors of many kinds
            expected = None
        try:
            got = [(f.name, f.value) for f in decoder.decode(block)]
        except RemoteProtocolError:
            got = None
        assert got == expected
        if got is None:
            return


@given(
    st.lists(st.tuples(st.integers(0, 70_000), st.integers(0, 70_000), st.integers(1, 70_000)), min_size=1, max_size=8),
    st.integers(0, 80_000),
)
def test_calls_of_a_client_of_h2(calls: list[tuple[int, int, int]], window: int) -> None:
    """Each call sends a message and gets one, both of any size, at any window of the client."""
    client = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding=None))
    client.initiate_connection()
    client.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
    server, got, answers = GrpcConnection(), {}, {}
    sends: dict[int, bytes] = {}
    for size, answer, _ in calls:
        number = client.get_next_available_stream_id()
        client.send_headers(
            number,
            [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/s/C%d" % answer), (b":authority", b"h"),
             (b"content-type", b"application/grpc"), (b"x-long", bytes(range(33, 120)))],
        )  # fmt: skip
        sends[number] = prefixed(bytes(size))
        answers[number] = b""
    ended: set[int] = set()
    while len(ended) < len(calls):
        moved = False
        for number, left in list(sends.items()):
            part = min(client.local_flow_control_window(number), client.max_outbound_frame_size, len(left))
            if part or not left:
                client.send_data(number, left[:part], end_stream=part == len(left))
                sends[number] = left[part:]
                moved = True
                if part == len(left):
                    del sends[number]
        to_server = client.data_to_send()
        for event in server.receive(to_server, 1.0):
            if event.kind == grpc.MESSAGE:
                got[event.call.stream.number] = len(event.message)
                server.answer(event.call, bytes(int(event.call.path[4:])))
        assert server.http.error is None
        to_client = server.http.output()
        for told in client.receive_data(to_client):
            if isinstance(told, h2.events.DataReceived):
                answers[told.stream_id] += told.data
                if told.flow_controlled_length:
                    client.increment_flow_control_window(told.flow_controlled_length)
                    with contextlib.suppress(h2.exceptions.StreamClosedError):
                        client.increment_flow_control_window(told.flow_controlled_length, told.stream_id)
            elif isinstance(told, h2.events.StreamEnded):
                ended.add(told.stream_id)
        if not (moved or to_server or to_client):
            # Only a client whose windows are too small stands still; a real one would open them now.
            assert window < 70_005
            for number in set(answers) - ended:
                client.increment_flow_control_window(70_005, number)
    assert sorted(got.values()) == sorted(size for size, _, _ in calls)
    assert sorted(answers.values()) == sorted(prefixed(bytes(answer)) for _, answer, _ in calls)
    assert server.held == 0 and server.http.queued == 0 and not server.http.streams
