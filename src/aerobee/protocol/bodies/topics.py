"""Tables of topics, which brokers register and store, and lists of topics."""

from __future__ import annotations

from dataclasses import dataclass, field

from aerobee.model.dataversion import INITIAL, DataVersion
from aerobee.model.dialect import dumps_plain
from aerobee.model.topic import TopicConfig
from aerobee.protocol.bodies.base import Body
from aerobee.protocol.bodies.statictopic import TopicQueueMappingDetail, TopicQueueMappingInfo


@dataclass(frozen=True, slots=True)
class TopicConfigSerializeWrapper(Body):
    """GET_ALL_TOPIC_CONFIG and `config/topics.json`."""

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = INITIAL

    def encode(self) -> bytes:
        """Return the bytes of the body. Keys are texts and there are no doubles, so the fast writer is used."""
        return dumps_plain(self.to_json())


@dataclass(frozen=True, slots=True)
class TopicConfigAndMappingSerializeWrapper(Body):
    """The topics of REGISTER_BROKER, with the mappings of static ones."""

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = INITIAL
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = field(default_factory=dict)
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] = field(default_factory=dict)
    mapping_data_version: DataVersion = INITIAL


# One frozen value serves as every default.
NO_TOPICS = TopicConfigAndMappingSerializeWrapper()


@dataclass(frozen=True, slots=True)
class TopicList(Body):
    """Names of topics."""

    topic_list: tuple[str, ...] = ()
    broker_addr: str | None = None


@dataclass(frozen=True, slots=True)
class CreateTopicListRequestBody(Body):
    """UPDATE_AND_CREATE_TOPIC_LIST."""

    topic_config_list: tuple[TopicConfig, ...] = ()
