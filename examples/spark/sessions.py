"""Group the clicks of a user into sessions that end when the user is silent for a while (transformWithState).

NAMESRV_ADDR=localhost:9876 python examples/spark/sessions.py clicks state/
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

from pyspark_rocketmq.session import session

SILENCE_MS = 60_000


class Sessions(StatefulProcessor):
    """One open session for each user. It ends when a click comes too late, or when the stream's time passes it."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.open = handle.getValueState("open", "first_ms long, last_ms long, clicks int")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Add the clicks of one user, in order of time."""
        current = self.open.get() if self.open.exists() else None
        for time_ms in sorted(row.time_ms for row in rows):
            if current is not None and time_ms - current[1] > SILENCE_MS:
                yield self._session(key, current)
                current = None
            current = (time_ms, time_ms, 1) if current is None else (current[0], time_ms, current[2] + 1)
        if current is not None:
            self.open.update(current)
            for timer in list(self.handle.listTimers()):
                self.handle.deleteTimer(timer)
            self.handle.registerTimer(current[1] + SILENCE_MS)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        """End the session of a user who has not clicked in time."""
        if self.open.exists():
            yield self._session(key, self.open.get())
            self.open.clear()

    def close(self) -> None:
        """Do nothing: no resources are held."""

    @staticmethod
    def _session(key: Any, found: Any) -> Row:
        return Row(user=key[0], first_ms=found[0], last_ms=found[1], clicks=found[2])


def sessions(spark: SparkSession, namesrv: str, topic: str) -> DataFrame:
    """Return the ended sessions of a topic whose messages have the user in `keys`. Time is the born time of a click."""
    clicks = (
        spark.readStream.format("rocketmq")
        .option("nameServer", namesrv)
        .option("topic", topic)
        .option("startingOffsets", "earliest")
        .schema("keys string, body binary")
        .load()
        .selectExpr("keys as user", "cast(cast(body as string) as bigint) as time_ms")
        .selectExpr("*", "timestamp_millis(time_ms) as time")
        .withWatermark("time", "1 second")
    )
    return clicks.groupBy("user").transformWithState(
        statefulProcessor=Sessions(),
        outputStructType="user string, first_ms bigint, last_ms bigint, clicks int",
        outputMode="append",
        timeMode="EventTime",
    )


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    namesrv = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
    with session("sessions") as spark:
        found = sessions(spark, namesrv, sys.argv[1])
        # The console sink prints into the session's log, as the JVM does.
        shown = found.writeStream.foreachBatch(lambda rows, _: rows.show(truncate=False))
        shown.option("checkpointLocation", sys.argv[2]).start().awaitTermination()


if __name__ == "__main__":
    main()
