"""The settings of metrics, under RocketMQ's keys. They belong to brokers and to name servers.

RocketMQ: BrokerConfig (metricsExporterType ...), MetricsExporterType.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from aerobee.config.setting import Settings, setting

_LABEL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,62}")
# Labels that the series have already.
_TAKEN: Final = ("cluster", "node_type", "node_id", "topic", "consumer_group", "le")


class MetricsExporter(enum.Enum):
    """How metrics leave the server."""

    DISABLE = 0
    OTLP_GRPC = 1
    PROM = 2
    LOG = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig(Settings):
    """The port where Prometheus and probes ask: `/metrics`, `/healthz` and `/readyz`."""

    exporter_type: MetricsExporter = setting(
        MetricsExporter.DISABLE,
        java="metricsExporterType",
        doc="PROM serves metrics, and the answers to health probes, on a port of their own.",
    )
    prom_exporter_port: int = setting(
        5557, java="metricsPromExporterPort", maximum=65535, doc="That port; 0 takes a free one."
    )
    prom_exporter_host: str = setting(
        "",
        java="metricsPromExporterHost",
        doc="Address of that port; empty takes 127.0.0.1 (Apache: brokerIP1). An address that other machines reach "
        "needs --insecure: nobody has to log in there.",
    )
    label: str = setting("", java="metricsLabel", doc="Labels for every series: `name:value,name:value`.")
    cardinality_limit: int = setting(
        50_000,
        java="metricsOtelCardinalityLimit",
        minimum=100,
        doc="The most series of one metric. What is beyond is added up under the topic or group `_other`.",
    )

    @property
    def is_on(self) -> bool:
        return self.exporter_type is MetricsExporter.PROM

    def labels(self) -> dict[str, str]:
        """Return the labels of `metricsLabel`."""
        pairs = (one.split(":", 1) for one in self.label.split(",") if ":" in one)
        return {name.strip(): value.strip() for name, value in pairs}

    def relations(self) -> Iterable[str]:
        if self.exporter_type in (MetricsExporter.OTLP_GRPC, MetricsExporter.LOG):
            yield (
                f"metricsExporterType={self.exporter_type.name} is not built in: set PROM, and let a collector scrape "
                "the port (OpenTelemetry's collector has a prometheus receiver)"
            )
        for one in filter(None, self.label.split(",")):
            name, colon, _ = one.partition(":")
            if not colon or not _LABEL_NAME.fullmatch(name.strip()):
                yield f"metricsLabel: {one!r} is not of the form name:value"
            elif name.strip() in _TAKEN or name.strip().startswith("__"):
                yield f"metricsLabel: {name.strip()} is a label that the series have already"
