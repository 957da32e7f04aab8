import pytest

from aerobee.broker.config import BrokerConfig
from aerobee.broker.refusal import Refusal
from aerobee.broker.topics.attributes import REFUSED_VALUES
from aerobee.broker.topics.rules import topic_rules
from aerobee.model.topic import TopicConfig
from aerobee.protocol.codes import ResponseCode


@pytest.mark.parametrize("name, value", REFUSED_VALUES)
def test_a_topic_cannot_be_made_with_a_value_that_has_no_effect(name: str, value: str) -> None:
    rules = topic_rules(BrokerConfig())
    refusal = rules.change(TopicConfig("t", attributes={f"+{name}": value}), None)
    assert isinstance(refusal, Refusal)
    assert refusal.code == ResponseCode.INVALID_PARAMETER
    assert refusal.remark.startswith(f"{name}={value} is not supported: ")
