"""The body of REGISTER_BROKER, in JSON or compressed.

The compressed form is zlib over data version (length 4, JSON), topic count 4, each topic (length 4, its one-line form),
filter servers (length 4, JSON) and, from version 5.0.0 on, mapping count 4 and each mapping (length 4, JSON).
RocketMQ: RegisterBrokerBody.encode, decode.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from aerobee.model.dataversion import DataVersion
from aerobee.model.dialect import DialectError, Slices, dumps, dumps_plain, loads_slices, object_of, run_slices
from aerobee.model.topic import TopicConfig
from aerobee.protocol.bodies.base import Body
from aerobee.protocol.bodies.statictopic import TopicQueueMappingInfo
from aerobee.protocol.bodies.topics import NO_TOPICS, TopicConfigAndMappingSerializeWrapper
from aerobee.protocol.bodysizes import body_size_max
from aerobee.protocol.codes import RequestCode

# The ordinal of MQVersion.V5_0_0: older brokers send no mappings.
VERSION_WITH_MAPPINGS = 413
# The JSON form has the same limit.
INFLATED_SIZE_MAX = body_size_max(RequestCode.REGISTER_BROKER)
_INFLATE_SLICE = 256 << 10
_SLICE = 50


@dataclass(frozen=True, slots=True)
class RegisterBrokerBody(Body):
    """The topics that a broker registers, and its filter servers."""

    topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = NO_TOPICS
    filter_server_list: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return the JSON form. The fast writer is used unless there are mappings, which have numbers as keys."""
        wrapper = self.topic_config_serialize_wrapper
        if wrapper.topic_queue_mapping_info_map or wrapper.topic_queue_mapping_detail_map:
            return dumps(self.to_json())
        return dumps_plain(self.to_json())

    def encode_compressed(self) -> bytes:
        """Return the compressed form."""
        wrapper = self.topic_config_serialize_wrapper
        parts = [_block(dumps(wrapper.data_version.to_json())), _int(len(wrapper.topic_config_table))]
        parts += [_block(topic.to_text().encode()) for topic in wrapper.topic_config_table.values()]
        parts.append(_block(dumps(list(self.filter_server_list))))
        mappings = wrapper.topic_queue_mapping_info_map
        parts.append(_int(len(mappings)))
        parts += [_block(dumps(mapping.to_json())) for mapping in mappings.values()]
        return zlib.compress(b"".join(parts), 9)

    @classmethod
    def decode_compressed(cls, data: bytes, broker_version: int) -> RegisterBrokerBody:
        """Return the body of a compressed form. Raises DialectError, also if it inflates beyond INFLATED_SIZE_MAX."""
        return run_slices(cls.decode_compressed_slices(data, broker_version))

    @classmethod
    def decode_compressed_slices(cls, data: bytes, broker_version: int) -> Slices[RegisterBrokerBody]:
        """Return what `decode_compressed` does, in slices."""
        reader = _Reader((yield from _inflate(data)))
        version = DataVersion.from_json(object_of((yield from loads_slices(reader.block()))))
        topics: dict[str, TopicConfig] = {}
        for number in range(reader.count()):
            topic = _topic(reader.block())
            topics[topic.topic_name] = topic
            if number % _SLICE == 0:
                yield
        servers = yield from loads_slices(reader.block())
        mappings: dict[str, TopicQueueMappingInfo] = {}
        if broker_version >= VERSION_WITH_MAPPINGS:
            for _ in range(reader.count()):
                mapping = yield from TopicQueueMappingInfo.decode_slices(reader.block())
                mappings[mapping.topic] = mapping
                yield
        wrapper = TopicConfigAndMappingSerializeWrapper(topics, version, mappings)
        return cls(wrapper, tuple(str(server) for server in servers) if isinstance(servers, list) else ())


def _topic(line: bytes) -> TopicConfig:
    try:
        topic = TopicConfig.from_text(line.decode())
    except ValueError:
        topic = None
    if topic is None:
        raise DialectError("a registered topic's line cannot be read")
    return topic


def _int(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _block(data: bytes) -> bytes:
    return _int(len(data)) + data


def _inflate(data: bytes) -> Slices[bytes]:
    inflater = zlib.decompressobj()
    parts: list[bytes] = []
    size = 0
    while data:
        try:
            parts.append(inflater.decompress(data, _INFLATE_SLICE))
        except zlib.error as problem:
            raise DialectError(f"the register body does not inflate: {problem}") from None
        size += len(parts[-1])
        if size > INFLATED_SIZE_MAX:
            raise DialectError(f"the register body inflates beyond {INFLATED_SIZE_MAX} bytes")
        data = inflater.unconsumed_tail
        yield
    return b"".join(parts)


class _Reader:
    """A reader of blocks that each have their length before them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def count(self) -> int:
        end = self._at + 4
        if end > len(self._data):
            raise DialectError("the register body ends early")
        value = int.from_bytes(self._data[self._at : end], "big", signed=True)
        # Each entry takes at least 4 bytes, so a larger number cannot be right.
        if not 0 <= value <= len(self._data) - end:
            raise DialectError(f"{value} is not a valid length in the register body")
        self._at = end
        return value

    def block(self) -> bytes:
        size = self.count()
        self._at += size
        return self._data[self._at - size : self._at]
