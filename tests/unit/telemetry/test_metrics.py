import pytest

from aerobee.errors import InvalidArgumentError
from aerobee.telemetry.metrics import Registry


def test_prometheus_text() -> None:
    registry = Registry()
    registry.counter("puts_total", "Messages put.\nAll of them.", {"topic": 'a"b\\c\n'}).add(3)
    registry.counter("puts_total", labels={"topic": "x"}).value += 2
    registry.gauge("lag").value = 1.5
    registry.gauge("depth", read=lambda: 7)
    assert registry.render() == (
        "# TYPE depth gauge\n"
        "depth 7\n"
        "# TYPE lag gauge\n"
        "lag 1.5\n"
        "# HELP puts_total Messages put.\\nAll of them.\n"
        "# TYPE puts_total counter\n"
        'puts_total{topic="a\\"b\\\\c\\n"} 3\n'
        'puts_total{topic="x"} 2\n'
    )


def test_the_same_name_is_the_same_metric() -> None:
    registry = Registry()
    registry.counter("a", labels={"x": "1", "y": "2"}).add()
    registry.counter("a", labels={"y": "2", "x": "1"}).add(2)
    assert registry.values() == {'a{x="1",y="2"}': 3}


def test_a_gauge_that_is_asked_and_replaced() -> None:
    registry = Registry()
    registry.gauge("g", read=lambda: 1)
    registry.gauge("g", read=lambda: float("inf"))
    assert registry.render().endswith("g +Inf\n")


def test_names_kinds_and_labels_are_checked() -> None:
    registry = Registry()
    registry.counter("a")
    with pytest.raises(InvalidArgumentError, match="is a counter"):
        registry.gauge("a")
    with pytest.raises(InvalidArgumentError, match="name of a metric"):
        registry.counter("a b")
    with pytest.raises(InvalidArgumentError, match="label"):
        registry.counter("a", labels={"x-y": "1"})


def test_what_carries_a_label_is_forgotten_together() -> None:
    registry = Registry()
    for topic in ("t", "u"):
        registry.counter("puts", labels={"topic": topic})
        registry.gauge("lag", labels={"topic": topic, "group": "g"})
    assert registry.remove({"topic": "t"}) == 2
    assert list(registry.values()) == ['lag{group="g",topic="u"}', 'puts{topic="u"}']
