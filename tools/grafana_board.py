"""Write deploy/grafana/aerobee.json, the board for Grafana; with --check only compare.

A line of the table below is a panel: title, unit, and an expression with the legend of its series for each curve. The
first rows use names only that Apache RocketMQ 5 has, too.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any, Final

BOARD = pathlib.Path(__file__).resolve().parent.parent / "deploy" / "grafana" / "aerobee.json"
_NODE: Final = 'cluster=~"$cluster",node_id=~"$node"'
_USER: Final = f'{_NODE},is_system="false"'
_WIDTH: Final = 8
_HEIGHT: Final = 7

Panel = tuple[str, str, list[tuple[str, str]]]


def _rate(name: str, by: str, labels: str = _USER) -> str:
    return f"sum by ({by}) (rate({name}{{{labels}}}[$__rate_interval]))"


def _quantile(name: str, by: str, labels: str = _NODE) -> str:
    return f"histogram_quantile(0.99, sum by ({by}, le) (rate({name}_bucket{{{labels}}}[$__rate_interval])))"


_SEND: Final = f'{_NODE},request_code="send_message_v2"'
ROWS: Final[dict[str, list[Panel]]] = {
    "Traffic": [
        ("Messages in", "short", [(_rate("rocketmq_messages_in_total", "node_id"), "{{node_id}}")]),
        ("Messages out", "short", [(_rate("rocketmq_messages_out_total", "node_id"), "{{node_id}}")]),
        ("Bytes in and out", "Bps", [
            (_rate("rocketmq_throughput_in_total", "node_id"), "{{node_id}} in"),
            (_rate("rocketmq_throughput_out_total", "node_id"), "{{node_id}} out"),
        ]),
        ("Messages in, by topic", "short", [
            (f"topk(10, {_rate('rocketmq_messages_in_total', 'topic')})", "{{topic}}"),
        ]),
        ("Messages out, by group", "short", [
            (f"topk(10, {_rate('rocketmq_messages_out_total', 'consumer_group')})", "{{consumer_group}}"),
        ]),
        ("Size of messages", "bytes", [(_quantile("rocketmq_message_size", "node_id"), "99 % of {{node_id}}")]),
    ],
    "Latency": [
        ("Sends, 99 %", "ms", [
            (_quantile("rocketmq_rpc_latency_milliseconds", "node_id", _SEND), "{{node_id}}"),
        ]),
        ("Requests, by code", "short", [
            (
                f"topk(10, {_rate('rocketmq_rpc_latency_milliseconds_count', 'request_code', _NODE)})",
                "{{request_code}}",
            ),
        ]),
        ("Answers that are no success", "short", [
            (
                _rate("rocketmq_rpc_latency_milliseconds_count", "response_code", f'{_NODE},response_code!="success"'),
                "{{response_code}}",
            ),
        ]),
    ],
    "Groups": [
        ("Messages behind", "short", [
            (f"topk(10, sum by (consumer_group, topic) (rocketmq_consumer_lag_messages{{{_USER}}}))",
             "{{consumer_group}} on {{topic}}"),
        ]),
        ("Oldest message that is not consumed", "ms", [
            (f"topk(10, max by (consumer_group, topic) (rocketmq_consumer_lag_latency_milliseconds{{{_USER}}}))",
             "{{consumer_group}} on {{topic}}"),
        ]),
        ("Delivered and not yet consumed", "short", [
            (f"topk(10, sum by (consumer_group, topic) (rocketmq_consumer_inflight_messages{{{_USER}}}))",
             "{{consumer_group}} on {{topic}}"),
        ]),
        ("Dead letters in the last hour", "short", [
            (f"sum by (consumer_group, topic) (increase(rocketmq_send_to_dlq_messages_total{{{_NODE}}}[1h]))",
             "{{consumer_group}} on {{topic}}"),
        ]),
        ("Connections of consumers", "short", [
            (f"sum by (consumer_group) (rocketmq_consumer_connections{{{_NODE}}})", "{{consumer_group}}"),
        ]),
        ("Connections of producers", "short", [
            (f"sum by (language, version) (rocketmq_producer_connections{{{_NODE}}})", "{{language}} {{version}}"),
        ]),
    ],
    "Store": [
        ("Not yet on disk", "bytes", [(f"rocketmq_storage_flush_behind_bytes{{{_NODE}}}", "{{node_id}}")]),
        ("Not yet in the queues", "bytes", [(f"rocketmq_storage_dispatch_behind_bytes{{{_NODE}}}", "{{node_id}}")]),
        ("Age of the oldest message", "ms", [
            (f"rocketmq_storage_message_reserve_time_milliseconds{{{_NODE}}}", "{{node_id}}"),
        ]),
    ],
    "Transactions": [
        ("Commits", "short", [(_rate("rocketmq_commit_messages_total", "topic", _NODE), "{{topic}}")]),
        ("Rollbacks", "short", [(_rate("rocketmq_rollback_messages_total", "topic", _NODE), "{{topic}}")]),
        ("Open transactions", "short", [(f"sum by (node_id) (rocketmq_half_messages{{{_NODE}}})", "{{node_id}}")]),
    ],
    "Aerobee": [
        ("Ready", "short", [(f"aerobee_ready{{{_NODE}}}", "{{node_id}}")]),
        ("Lag of the event loop, 99 %", "s", [(_quantile("aerobee_loop_lag_seconds", "node_id"), "{{node_id}}")]),
        ("Refused because busy", "short", [
            (_rate("aerobee_busy_answers_total", "request_code", _NODE), "{{request_code}}"),
        ]),
        ("Used disk", "percentunit", [(f"aerobee_disk_used_ratio{{{_NODE}}}", "{{node_id}}")]),
        ("Open connections", "short", [(f"aerobee_connections{{{_NODE}}}", "{{node_id}}")]),
        ("Held pulls", "short", [(f"aerobee_held_pulls{{{_NODE}}}", "{{node_id}}")]),
        ("Timed messages that wait", "short", [(f"aerobee_timers_pending{{{_NODE}}}", "{{node_id}}")]),
        ("Oldest open transaction", "s", [(f"aerobee_pending_oldest_seconds{{{_NODE}}}", "{{node_id}}")]),
        ("Brokers that name servers know", "short", [("aerobee_namesrv_brokers", "{{instance}}")]),
    ],
}  # fmt: skip


def board() -> dict[str, Any]:
    """Return the board as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        panels.append(_placed({"type": "row", "title": title, "collapsed": False, "panels": []}, 0, y, 24, 1, panels))
        y += 1
        for number, (name, unit, curves) in enumerate(row):
            x = number % (24 // _WIDTH) * _WIDTH
            if number and x == 0:
                y += _HEIGHT
            panels.append(_placed(_panel(name, unit, curves), x, y, _WIDTH, _HEIGHT, panels))
        y += _HEIGHT
    return {
        "title": "Aerobee",
        "uid": "aerobee",
        "tags": ["rocketmq"],
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_data_source(), _variable("cluster"), _variable("node")]},
        "panels": panels,
    }


def _placed(panel: dict[str, Any], x: int, y: int, w: int, h: int, before: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": len(before) + 1, "gridPos": {"x": x, "y": y, "w": w, "h": h}, **panel}


def _panel(title: str, unit: str, curves: list[tuple[str, str]]) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": title,
        "datasource": {"type": "prometheus", "uid": "$source"},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + place), "expr": expression, "legendFormat": legend}
            for place, (expression, legend) in enumerate(curves)
        ],
    }


def _data_source() -> dict[str, Any]:
    return {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}


def _variable(name: str) -> dict[str, Any]:
    label = "node_id" if name == "node" else name
    return {
        "name": name,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "$source"},
        "query": f"label_values(rocketmq_broker_permission, {label})",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def main(arguments: list[str]) -> int:
    """Write the file; with --check return 1 where it is stale."""
    text = json.dumps(board(), indent=1) + "\n"
    if "--check" in arguments:
        return 0 if BOARD.exists() and BOARD.read_text() == text else 1
    BOARD.parent.mkdir(parents=True, exist_ok=True)
    BOARD.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
