"""The port for monitoring: `/metrics`, `/healthz` and `/readyz` of one server.

A start that recovers a large store keeps the loop of the server busy. Until it is over, a thread answers on the same
port: alive, and not ready yet. Otherwise a probe would end the process that recovers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from aerobee.app.process import CannotListenError
from aerobee.net.http import HttpPort, MakePage, Page, text_page
from aerobee.runtime.loopthread import LoopThread
from aerobee.runtime.net import RealNet
from aerobee.runtime.seams import Clock
from aerobee.telemetry.config import MetricsConfig
from aerobee.telemetry.metrics import CONTENT_TYPE
from aerobee.telemetry.stdlog import get_log

LOOPBACK: Final = "127.0.0.1"
_JSON: Final = "application/json"
_log = get_log("monitoring")


def metrics_address(config: MetricsConfig, place: int = 0) -> str:
    """Return where the metrics are of the server at a place among several, whose ports follow each other."""
    host = config.prom_exporter_host or LOOPBACK
    return f"http://{f'[{host}]' if ':' in host else host}:{config.prom_exporter_port + place}/metrics"


class Monitoring:
    """The port of one server. Without metrics it is never opened."""

    def __init__(self, config: MetricsConfig, clock: Clock) -> None:
        self.config = config
        self._clock = clock
        self._host = config.prom_exporter_host or LOOPBACK
        self.port = 0
        self._early: tuple[LoopThread, HttpPort] | None = None
        self.http: HttpPort | None = None

    @property
    def address(self) -> str:
        """Return where the metrics are, or an empty text where there are none."""
        config = self.config
        return metrics_address(config, self.port - config.prom_exporter_port) if config.is_on else ""

    async def answer_early(self) -> None:
        """Answer probes from a thread, until `serve` takes over. Raise OSError if the port cannot be used."""
        if not self.config.is_on:
            return
        waiting = "recovering: the store is being opened"
        pages = _pages(lambda: iter(("",)), lambda: "", lambda: [waiting])
        thread = LoopThread("aerobee-monitoring")
        http = HttpPort(pages, self._clock, RealNet())
        try:
            self.port = thread.run(http.listen(self._host, self.config.prom_exporter_port))
        except OSError as error:
            thread.stop()
            raise self._refused(error) from error
        except BaseException:
            thread.stop()
            raise
        self._early = (thread, http)

    async def serve(
        self, metrics: Callable[[], Iterator[str]], problem: Callable[[], str], reasons: Callable[[], list[str]]
    ) -> None:
        """Serve the pages on this loop from now on."""
        if not self.config.is_on:
            return
        self._end_early()
        self.http = HttpPort(_pages(metrics, problem, reasons), self._clock, RealNet())
        try:
            self.port = await self.http.listen(self._host, self.port or self.config.prom_exporter_port)
        except OSError as error:
            raise self._refused(error) from error
        _log.info("metrics are served", address=self.address)

    def _refused(self, error: OSError) -> CannotListenError:
        port = self.port or self.config.prom_exporter_port
        hint = "Stop the process that uses it, or take another port with --set metricsPromExporterPort=PORT."
        return CannotListenError("metrics", self._host, port, error, hint)

    def _end_early(self) -> None:
        early, self._early = self._early, None
        if early is not None:
            thread, http = early
            thread.run(http.close())
            thread.stop()

    async def close(self) -> None:
        """Close the port."""
        self._end_early()
        if self.http is not None:
            await self.http.close()


def _pages(
    metrics: Callable[[], Iterator[str]], problem: Callable[[], str], reasons: Callable[[], list[str]]
) -> Mapping[str, MakePage]:
    def health() -> Page:
        found = problem()
        return _verdict("healthy", [found] if found else [])

    return {
        "/metrics": lambda: Page(200, CONTENT_TYPE, metrics()),
        "/healthz": health,
        "/readyz": lambda: _verdict("ready", reasons()),
    }


def _verdict(name: str, reasons: list[str]) -> Page:
    text = json.dumps({name: not reasons, "reasons": reasons}) + "\n"
    return text_page(503 if reasons else 200, text, _JSON)
