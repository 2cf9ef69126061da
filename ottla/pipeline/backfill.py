"""The stages as a batch over a range of offsets or times: for old records, and to compare the result with that of a stream.

Everything goes to `<output>/backfill`, which is replaced; dead letters go there too, because their topic has them already.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from ottla.pipeline import bronze, gold, session, silver, topics
from ottla.pipeline.config import Config, changed
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.explain import explained

RESULTS = ("bronze", "silver", "dead-letters", "windows", "sessions")


def ranged(config: Config, start: str, end: str) -> Config:
    """Start and end in one of Spark's forms: earliest, latest, offsets by partition in JSON, epoch milliseconds, or an ISO
    time.
    """
    for text, side in ((start, "starting"), (end, "ending")):
        if text in ("earliest", "latest") or text.startswith("{"):
            config = changed(config, "source", f"{side}_offsets", text, "backfill")
        elif text:
            config = changed(config, "source", f"{side}_timestamp", str(epoch_ms(text)), "backfill")
    return config


def epoch_ms(text: str) -> int:
    if text.isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise PipelineError(
            f"{text} is no place in a topic",
            remedy="give earliest, latest, JSON offsets, epoch ms or a time such as 2026-01-31T12:00:00",
        ) from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def run(config: Config) -> dict[str, int]:
    """Run all stages over a range and return the number of rows of each result."""
    topics.ensure(config)
    spark = session.start(config)

    def path(name: str) -> str:
        return config.path("backfill", name)

    try:
        bronze.batch(spark, config).write.mode("overwrite").partitionBy("date").parquet(path("bronze"))
        events, letters = silver.batch(spark.read.schema(bronze.SCHEMA).parquet(path("bronze")), config)
        events.write.mode("overwrite").partitionBy("date").parquet(path("silver"))
        letters.write.mode("overwrite").parquet(path("dead-letters"))
        good = spark.read.schema(silver.SCHEMA).parquet(path("silver"))
        gold.windows(good, config).drop("deleted").write.mode("overwrite").parquet(path("windows"))
        gold.session_batch(good, config).drop("deleted").write.mode("overwrite").parquet(path("sessions"))
        counts = {name: spark.read.parquet(path(name)).count() for name in RESULTS}
    except PipelineError:
        raise
    except Exception as error:
        raise explained(error, config) from None
    Path(path("counts.json")).write_text(json.dumps(counts))
    return counts
