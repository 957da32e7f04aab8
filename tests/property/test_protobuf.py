"""Our protobuf by tables beside google's: the same bytes both ways, and the same bytes refused.

google's gets the messages from our own tables, under another package name, so nothing of Apache's is copied and no name
clashes. That the tables are Apache's is tested where Apache's descriptors are (tests/interop/test_grpc_clients.py).
"""

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aerobee.errors import RemoteProtocolError
from aerobee.hot.wire import protobuf
from aerobee.protocol.v2 import calls, values
from aerobee.protocol.v2.calls import PbAckMessageRequest
from aerobee.protocol.v2.fields import REQUEST_FIELDS_MAX, decode, decode_request, encode, messages, table_of

assert calls and values
TYPES = {
    protobuf.INT32: 5, protobuf.INT64: 3, protobuf.BOOL: 8, protobuf.FLOAT: 2, protobuf.STRING: 9, protobuf.BYTES: 12,
    protobuf.MESSAGE: 11, protobuf.TEXTS: 11,
}  # fmt: skip


def theirs() -> dict[type, Any]:
    """google's class of each message."""
    file = descriptor_pb2.FileDescriptorProto(name="ours.proto", package="ours", syntax="proto3")
    tables = {id(table_of(cls)): cls.__name__ for cls in messages()}
    for cls in messages():
        made = file.message_type.add(name=cls.__name__)
        oneofs: dict[frozenset[str], int] = {}
        late = []
        for field in table_of(cls).fields:
            added = made.field.add(name=field.name, number=field.number, type=TYPES[field.kind])
            added.label = 3 if field.many or field.kind == protobuf.TEXTS else 1
            if field.kind == protobuf.TEXTS:
                entry = made.nested_type.add(name="".join(w.title() for w in field.name.split("_")) + "Entry")
                entry.field.add(name="key", number=1, type=9, label=1)
                entry.field.add(name="value", number=2, type=9, label=1)
                entry.options.map_entry = True
                added.type_name = f".ours.{cls.__name__}.{entry.name}"
            elif field.table is not None:
                added.type_name = f".ours.{tables[id(field.table)]}"
            if field.rivals:
                group = frozenset((*field.rivals, field.name))
                if group not in oneofs:
                    oneofs[group] = len(made.oneof_decl)
                    made.oneof_decl.add(name=f"oneof{len(oneofs)}")
                added.oneof_index = oneofs[group]
            elif field.optional and field.kind != protobuf.MESSAGE:
                added.proto3_optional = True
                late.append(added)
        for added in late:
            added.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{added.name}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        cls: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ours.{cls.__name__}")) for cls in messages()
    }


THEIRS = theirs()
TEXT = st.text(max_size=12)
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    protobuf.INT32: st.integers(-(2**31), 2**31 - 1),
    protobuf.INT64: st.integers(-(2**63), 2**63 - 1),
    protobuf.BOOL: st.booleans(),
    protobuf.FLOAT: st.floats(width=32, allow_nan=False),
    protobuf.STRING: TEXT,
    protobuf.BYTES: st.binary(max_size=40),
    protobuf.TEXTS: st.dictionaries(TEXT, TEXT, max_size=4),
}


@st.composite
def built(draw: st.DrawFn, cls: type) -> Any:
    """A message with some of its fields set, at most one of each oneof."""
    made = cls()
    taken: set[str] = set()
    by_table = {id(table_of(one)): one for one in messages()}
    for field in table_of(cls).fields:
        if field.name in taken or draw(st.integers(0, 2)):
            continue
        taken.update(field.rivals)
        one = SCALARS[field.kind] if field.table is None else built(by_table[id(field.table)])
        setattr(made, field.name, draw(st.lists(one, max_size=3) if field.many else one))
    return made


@pytest.mark.parametrize("cls", messages(), ids=lambda cls: cls.__name__)
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_google_reads_what_we_write_and_writes_what_we_read(cls: type, data: st.DataObject) -> None:
    message = data.draw(built(cls))
    ours = encode(message)
    read = THEIRS[cls].FromString(ours)
    again = read.SerializeToString(deterministic=True)
    assert decode(cls, again) == message
    assert decode(cls, ours) == message


@pytest.mark.parametrize("cls", [calls.PbSendMessageRequest, calls.PbTelemetryCommand, values.PbMessageQueue])
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_changed_bytes_are_accepted_and_refused_alike(cls: type, data: st.DataObject) -> None:
    raw = bytearray(encode(data.draw(built(cls))) + data.draw(st.binary(max_size=20)))
    for _ in range(data.draw(st.integers(0, 3))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        theirs = THEIRS[cls].FromString(bytes(raw))
    except DecodeError:
        with pytest.raises(RemoteProtocolError):
            decode(cls, bytes(raw))
        return
    try:
        ours: object = decode(cls, bytes(raw))
    except RemoteProtocolError as error:
        # Groups are the one thing that google's passes over and ours refuses.
        assert "wire type 3" in error.message
        return
    theirs.DiscardUnknownFields()
    assert THEIRS[cls].FromString(encode(ours)).SerializeToString(deterministic=True) == theirs.SerializeToString(
        deterministic=True
    )


def test_messages_that_come_twice_are_merged() -> None:
    one = encode(
        values.PbMessage(topic=values.PbResource(name="a"), system_properties=values.PbSystemProperties(tag="t"))
    )
    two = encode(values.PbMessage(system_properties=values.PbSystemProperties(keys=["k"]), body=b"x"))
    both = decode(values.PbMessage, one + two)
    assert both == decode(values.PbMessage, THEIRS[values.PbMessage].FromString(one + two).SerializeToString())
    assert both.system_properties == values.PbSystemProperties(tag="t", keys=["k"])


def test_the_last_of_a_oneof_counts() -> None:
    settings = encode(calls.PbTelemetryCommand(settings=values.PbSettings(client_type=1)))
    trace = encode(calls.PbTelemetryCommand(thread_stack_trace=calls.PbThreadStackTrace(nonce="n")))
    both = decode(calls.PbTelemetryCommand, settings + trace)
    assert both.settings is None and both.thread_stack_trace == calls.PbThreadStackTrace(nonce="n")


@pytest.mark.parametrize("data", [b"\x1a\x00", b"\x78\x01", b"\x1a\x03\x12\x01x"])
def test_a_request_has_a_bounded_number_of_fields(data: bytes) -> None:
    """Two bytes can be an object, so four megabytes could be two million of them."""
    fits = REQUEST_FIELDS_MAX // (2 if len(data) > 2 else 1)
    assert decode_request(PbAckMessageRequest, data * fits) == decode(PbAckMessageRequest, data * fits)
    with pytest.raises(RemoteProtocolError, match="too many fields"):
        decode_request(PbAckMessageRequest, data * (fits + 1))
