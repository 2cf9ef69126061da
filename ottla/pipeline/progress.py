"""The progress of the streaming queries, one line for each micro-batch: text on a terminal, JSON in a pipe.

It is also kept for the report.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, TextIO


def line(progress: Any) -> dict[str, Any]:
    """Return a StreamingQueryProgress in the terms of this pipeline."""
    seconds = progress.batchDuration / 1000
    found: dict[str, Any] = {
        "time": progress.timestamp,
        "query": progress.name,
        "batch": progress.batchId,
        "rows": progress.numInputRows,
        "rows_per_second": round(progress.numInputRows / seconds, 1) if seconds else 0.0,
        "batch_ms": progress.batchDuration,
    }
    for name, place in (("lag_offsets_before", "startOffset"), ("lag_offsets", "endOffset")):
        behind = [offsets_behind(getattr(each, place), each.latestOffset) for each in progress.sources]
        if any(each is not None for each in behind):
            found[name] = sum(each or 0 for each in behind)
    dropped = sum(each.numRowsDroppedByWatermark for each in progress.stateOperators)
    if dropped:  # there are none, because the watermark exceeds the allowed lateness
        found["dropped_by_watermark"] = dropped
    return found


def offsets_behind(end: str | None, latest: str | None) -> int | None:
    """Return how many offsets of Kafka are not read yet; None for other sources."""
    read, there = (parsed(text) for text in (end, latest))
    if read is None or there is None:
        return None
    return sum(
        max(offset - read.get(topic, {}).get(partition, 0), 0)
        for topic, partitions in there.items()
        for partition, offset in partitions.items()
    )


def parsed(text: str | None) -> dict[str, dict[str, int]] | None:
    """Return the offsets of a Kafka source, `{"topic":{"0":12}}`; None for other sources."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    is_kafka = isinstance(found, dict) and all(isinstance(each, dict) for each in found.values())
    return found if is_kafka else None


def shown(each: dict[str, Any]) -> str:
    """Return a line for people."""
    lag = f", {each['lag_offsets']:,} offsets behind" if "lag_offsets" in each else ""
    dropped = f", {each['dropped_by_watermark']:,} DROPPED by the watermark" if "dropped_by_watermark" in each else ""
    text = f"{each['time'][11:19]} {each['query']:<12} batch {each['batch']:>4}: {each['rows']:>7,} rows"
    return f"{text}, {each['rows_per_second']:>9,.1f} rows/s, {each['batch_ms'] / 1000:5.2f} s{lag}{dropped}"


def listener(folder: str, out: TextIO) -> Any:
    """Return the listener. Its class is made here, because the base class exists only where pyspark is installed."""
    from pyspark.sql.streaming import StreamingQueryListener

    Path(folder).mkdir(parents=True, exist_ok=True)
    log = (Path(folder) / "progress.jsonl").open("a", buffering=1)
    is_for_people = out.isatty()

    class Progress(StreamingQueryListener):
        #: The runs whose events have all been received: Spark notifies its listeners late.
        ended: ClassVar[set[str]] = set()

        def onQueryStarted(self, event: Any) -> None: ...

        def onQueryProgress(self, event: Any) -> None:
            found = line(event.progress)
            text = json.dumps(found)
            log.write(text + "\n")
            print(shown(found) if is_for_people else text, file=out, flush=True)

        def onQueryIdle(self, event: Any) -> None: ...

        def onQueryTerminated(self, event: Any) -> None:
            self.ended.add(str(event.runId))

    return Progress()
