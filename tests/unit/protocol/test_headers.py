"""Headers: declared once, read and written by their wire names, in Apache's order."""

import importlib
import pkgutil

import pytest

import aerobee.protocol.headers as package
from aerobee.protocol.codes import (
    BINARY,
    JSON,
    RequestCode,
    request_codes,
)
from aerobee.protocol.command import decode_frame, encode_command, request
from aerobee.protocol.headers.base import (
    Header,
    InvalidHeaderError,
    decode_header,
    encode_header,
    text_of,
    wire_fields,
)
from aerobee.protocol.headers.offset import SearchOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from aerobee.protocol.headers.pull import PullMessageRequestHeader
from aerobee.protocol.headers.registry import REQUEST_HEADERS
from aerobee.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2


def all_headers() -> list[type[Header]]:
    found = set()
    for module in pkgutil.iter_modules(package.__path__):
        for value in vars(importlib.import_module(f"{package.__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Header) and value.__name__.endswith("Header"):
                found.add(value)
    return sorted(found, key=lambda cls: cls.__name__)


def filled(cls: type[Header]) -> Header:
    """Every field set: the first of text, number and boolean that the field takes."""
    ext: dict[str, str] = {}
    for _, name in wire_fields(cls):
        for value in ("true", "7", "v_" + name):
            ext[name] = value
            try:
                decode_header(cls, ext)
            except InvalidHeaderError as problem:
                if problem.field == name:
                    continue
            break
    return decode_header(cls, ext)


def test_the_registry_holds_the_headers_of_requests() -> None:
    assert len(REQUEST_HEADERS) >= 95
    assert REQUEST_HEADERS[RequestCode.SEND_MESSAGE_V2] is SendMessageRequestHeaderV2


@pytest.mark.parametrize("cls", all_headers(), ids=lambda cls: cls.__name__)
def test_a_header_survives_both_codecs(cls: type[Header]) -> None:
    header = filled(cls)
    for codec in (JSON, BINARY):
        command = decode_frame(encode_command(request(17, header, opaque=1, codec=codec)))
        assert decode_header(cls, command) == header
        assert set(command.ext) == {name for _, name in wire_fields(cls)}


def test_fields_have_the_order_of_apaches_map() -> None:
    # Recorded from RemotingCommand.fastEncodeHeader: two pairs of these names share a bucket.
    header = SendMessageRequestHeader(
        producer_group="g",
        topic="t",
        default_topic="d",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties="",
        reconsume_times=0,
        unit_mode=False,
        batch=False,
        max_reconsume_times=1,
        ns="n",
        nsd=True,
        bname="b",
        oway=True,
        lo=True,
    )
    order = (
        "queueId lo flag sysFlag reconsumeTimes ns batch unitMode defaultTopic defaultTopicQueueNums "
        "producerGroup maxReconsumeTimes oway bname topic bornTimestamp properties nsd"
    )
    assert list(encode_header(header)) == order.split()
    assert list(encode_header(header, binary=True)) == order.split()


def test_fast_headers_are_written_as_declared_in_binary() -> None:
    header = filled(PullMessageRequestHeader)
    names = list(encode_header(header, binary=True))
    assert names[:3] == ["consumerGroup", "topic", "liteTopic"] and names[-5:] == [
        "lo",
        "ns",
        "nsd",
        "bname",
        "oway",
    ]
    assert list(encode_header(header)) != names


def test_none_is_left_out_and_booleans_are_words() -> None:
    header = SearchOffsetRequestHeader(topic="t", queue_id=3, timestamp=5, nsd=False)
    assert encode_header(header) == {"topic": "t", "queueId": "3", "timestamp": "5", "nsd": "false"}
    assert (text_of(1.5e10), text_of(True)) == ("1.5E10", "true")


def test_a_missing_or_wrong_field_is_named() -> None:
    good = {"consumerGroup": "g", "topic": "t", "queueId": "1", "commitOffset": "2"}
    decode_header(UpdateConsumerOffsetRequestHeader, good)
    with pytest.raises(InvalidHeaderError, match="field <topic> is missing") as caught:
        decode_header(UpdateConsumerOffsetRequestHeader, {k: v for k, v in good.items() if k != "topic"})
    assert caught.value.field == "topic"
    for value in ("x", "2147483648", "1.5", "0x1"):
        with pytest.raises(InvalidHeaderError, match="field <queueId>"):
            decode_header(UpdateConsumerOffsetRequestHeader, {**good, "queueId": value})


def test_codes_have_names() -> None:
    assert len(request_codes()) == 169
    assert request_codes()["SEND_MESSAGE_V2"] == 310
