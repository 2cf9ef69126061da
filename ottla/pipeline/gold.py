"""Gold: page views by window, and sessions of users, in upsert tables (Delta or Parquet) and in compacted topics.

Both queries run in update mode: each micro-batch passes on the rows that it changed, also by late events, and the newest row of
a key counts. If a late event joins two sessions, the second one is taken back by a deleted row, and by a tombstone in the
topic. `ottla-pipeline run gold`, or `spark-submit pipeline/gold.py --config FILE`.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if __name__ == "__main__":
    # spark-submit puts this file's folder first on the path, not the folder that contains the package `ottla`.
    sys.path[0] = next(str(at) for at in Path(__file__).resolve().parents if (at / "ottla/pipeline").is_dir())

from ottla.pipeline import session, silver, upsert
from ottla.pipeline.config import Config
from ottla.pipeline.source import client_options
from ottla.pipeline.spans import Span, merged, split_closed
from ottla.pipeline.stage import Stage, triggered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

NAME: Final = "gold"
WINDOWS, SESSIONS = "windows", "sessions"
SESSION = "user STRING, start_ms BIGINT, end_ms BIGINT, events BIGINT, deleted BOOLEAN"
#: The open spans of a bucket of users as JSON, [[user, start_ms, end_ms, events], ...]: pyspark 4.0 cannot read arrays back.
STATE = "spans STRING"


class Table(NamedTuple):
    """A gold result: its keys, its values, and the column by which its Parquet is partitioned."""

    name: str
    keys: tuple[str, ...]
    values: tuple[str, ...]
    partition: str = "date"


WINDOW_TABLE = Table(WINDOWS, ("window_ms", "page"), ("views", "duration_ms"))
SESSION_TABLE = Table(SESSIONS, ("user", "start_ms"), ("end_ms", "events"))


def windows(events: DataFrame, config: Config) -> DataFrame:
    from pyspark.sql import functions as f

    window = f.window("event_time", f"{config.pipeline.window_seconds} seconds")
    counted = events.groupBy(window, "page").agg(f.count("*").alias("views"), f.sum("duration_ms").alias("duration_ms"))
    return counted.selectExpr(
        "unix_millis(window.start) AS window_ms",
        "page",
        "views",
        "duration_ms",
        "false AS deleted",
        "CAST(to_date(window.start) AS STRING) AS date",
    )


def dated(sessions: DataFrame) -> DataFrame:
    return sessions.selectExpr("*", "CAST(to_date(timestamp_millis(start_ms)) AS STRING) AS date")


def session_stream(events: DataFrame, config: Config) -> DataFrame:
    """Group users into buckets: Spark calls Python once for each group, and such a call with its state takes about 5 ms."""
    update: Callable[..., Iterator[Any]] = partial(_update_bucket, gap_ms=config.pipeline.session_gap_seconds * 1000)
    grouped = in_buckets(events, config.pipeline.session_buckets)
    return dated(grouped.applyInPandasWithState(update, SESSION, STATE, "update", "EventTimeTimeout"))


def session_batch(events: DataFrame, config: Config) -> DataFrame:
    find: Callable[..., Any] = partial(_find_sessions, gap_ms=config.pipeline.session_gap_seconds * 1000)
    return dated(in_buckets(events, config.pipeline.session_buckets).applyInPandas(find, SESSION))


def in_buckets(events: DataFrame, buckets: int) -> Any:
    return events.selectExpr(f"pmod(hash(user), {buckets}) AS bucket", "user", "event_time").groupBy("bucket")


def _update_bucket(key: tuple[int], frames: Iterable[Any], state: Any, gap_ms: int) -> Iterator[Any]:
    """Yield the users of a bucket in one micro-batch, or after a time-out.

    After a time-out there are no new events, and spans only close.
    """
    times = times_by_user(frames)
    spans: defaultdict[str, list[Span]] = defaultdict(list)
    for user, *span in json.loads(state.get[0]) if state.exists else ():
        spans[user].append(Span(*span))
    written: list[tuple[str, Span]] = []
    deleted: list[tuple[str, int]] = []
    still_open: list[tuple[str, Span]] = []
    watermark_ms = state.getCurrentWatermarkMs()
    for user in spans | times:
        changes = merged(spans[user], times.get(user, ()), gap_ms)
        written += [(user, span) for span in changes.written]
        deleted += [(user, start) for start in changes.deleted]
        still_open += [(user, span) for span in split_closed(changes.spans, watermark_ms, gap_ms)[1]]
    if still_open:
        state.update((json.dumps([(user, *span) for user, span in still_open]),))
        state.setTimeoutTimestamp(min(span.end_ms for _, span in still_open) + gap_ms + 1)
    elif state.exists:
        state.remove()
    yield as_frame(written, deleted)


def _find_sessions(key: tuple[int], frame: Any, gap_ms: int) -> Any:
    found = times_by_user([frame])
    return as_frame([(user, span) for user in found for span in merged((), found[user], gap_ms).spans], [])


def times_by_user(frames: Iterable[Any]) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for frame in frames:
        # Spark passes naive or zoned times in ns or us; all are UTC here.
        times_ms = frame["event_time"].astype("datetime64[ms]").astype("int64").tolist()
        for user, time_ms in zip(frame["user"], times_ms, strict=True):
            found[user].append(time_ms)
    return found


def as_frame(written: list[tuple[str, Span]], deleted: list[tuple[str, int]]) -> Any:
    import pandas as pd

    rows = [(user, *span, False) for user, span in written] + [(user, start, 0, 0, True) for user, start in deleted]
    frame = pd.DataFrame(rows, columns=["user", "start_ms", "end_ms", "events", "deleted"])
    return frame.astype({"start_ms": "int64", "end_ms": "int64", "events": "int64", "deleted": "bool"})


def messages(changes: DataFrame, table: Table) -> DataFrame:
    """Return rows as Kafka messages: key and value as JSON, and no value for a deleted row."""
    return changes.selectExpr(
        f"to_json(named_struct({named(table.keys)})) AS key",
        f"IF(deleted, NULL, to_json(named_struct({named(table.keys + table.values)}))) AS value",
    )


def named(columns: tuple[str, ...]) -> str:
    return ", ".join(f"'{column}', {column}" for column in columns)


def publisher(config: Config, table: Table, topic: str) -> Callable[[DataFrame, int], None]:
    """Return the foreachBatch function of a table.

    It writes to the topic first, so that every batch in the table is also in the topic.
    """

    in_delta = session.uses_delta(config)

    def publish(changes: DataFrame, batch_id: int) -> None:
        path = config.path("gold", table.name)
        if batch_id <= upsert.last_batch(path):
            return
        changes.persist()  # otherwise each use below would run the stateful step again
        try:
            if not changes.isEmpty():
                sink = messages(changes, table).write.format("kafka").option("topic", topic)
                sink.options(**client_options(config)).save()
                keys = list(table.keys)
                upsert.apply(
                    changes.sparkSession,
                    path,
                    changes,
                    batch_id,
                    keys=keys,
                    partition=table.partition,
                    in_delta=in_delta,
                )
        finally:
            changes.unpersist()

    return publish


def stream(spark: SparkSession, config: Config) -> list[StreamingQuery]:
    def watermarked() -> DataFrame:
        return silver.read(spark, config).withWatermark("event_time", config.pipeline.watermark)

    results = (
        (windows(watermarked(), config), WINDOW_TABLE, config.kafka.pages),
        (session_stream(watermarked(), config), SESSION_TABLE, config.kafka.sessions),
    )
    return [
        triggered(
            rows.writeStream.outputMode("update").foreachBatch(publisher(config, table, topic)), config, table.name
        ).start()
        for rows, table, topic in results
    ]


STAGE: Final = Stage(NAME, stream, silver.NAME)

if __name__ == "__main__":
    from ottla.pipeline.run import submitted

    submitted(STAGE)
