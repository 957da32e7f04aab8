import pytest

from aerobee.errors import InvalidArgumentError
from aerobee.model import names


@pytest.mark.parametrize("topic", ["a", "%a|B-9_", "t" * 127, "%RETRY%" + "g" * 248, "%DLQ%" + "g" * 250])
def test_allowed_topics(topic: str) -> None:
    assert names.require_topic(topic) == topic


@pytest.mark.parametrize(
    "topic", ["", " ", "a b", "a\n", "a/b", "..", "t" * 128, "%RETRY%" + "g" * 249, "\u4f60", "a+b", "\u0661"]
)
def test_refused_topics(topic: str) -> None:
    with pytest.raises(InvalidArgumentError):
        names.require_topic(topic)


def test_groups() -> None:
    assert names.require_group("g" * 120)
    for group in ("", "g" * 121, "a.b"):
        with pytest.raises(InvalidArgumentError):
            names.require_group(group)


def test_topics_only_the_broker_writes() -> None:
    assert names.require_sendable("RMQ_SYS_TRACE_TOPIC")
    for topic in names.SEND_FORBIDDEN_TOPICS:
        with pytest.raises(InvalidArgumentError):
            names.require_sendable(topic)


def test_system_and_derived_topics() -> None:
    assert names.is_system_topic("TBW102")
    assert names.is_system_topic("rmq_sys_wheel_timer")
    assert not names.is_system_topic("orders")
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.dlq_topic("g") == "%DLQ%g"
    assert names.pop_retry_topic("t", "g") == "%RETRY%g_t"
    assert names.pop_retry_topic("t", "g", 2) == "%RETRY%g+t"
    assert names.is_retry_topic("%RETRY%g")
    assert names.is_dlq_topic("%DLQ%g")
