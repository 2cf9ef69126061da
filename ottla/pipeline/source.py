"""The options of Spark's stock Kafka source from the configuration. The functions map a dictionary to a dictionary."""

from __future__ import annotations

from ottla.pipeline.config import KAFKA, OTTLA, TABLE, Config, Source
from ottla.pipeline.errors import PipelineError

#: Spark rejects these, but only after the JVM has started.
FORBIDDEN = (
    "auto.offset.reset",
    "key.deserializer",
    "value.deserializer",
    "enable.auto.commit",
    "interceptor.classes",
    "key.serializer",
    "value.serializer",
)

#: Option of Spark, our setting. For an empty or zero value Spark's default stays. The fourth field says whether it is for
#: streams only, for batches only, or for both.
STREAM, BATCH, BOTH = "stream", "batch", "both"
OPTIONS = (
    ("startingTimestamp", "starting_timestamp", BOTH),
    ("startingOffsetsByTimestamp", "starting_offsets_by_timestamp", BOTH),
    ("startingOffsetsByTimestampStrategy", "starting_offsets_by_timestamp_strategy", STREAM),
    ("startingOffsets", "starting_offsets", BOTH),
    ("endingTimestamp", "ending_timestamp", BATCH),
    ("endingOffsetsByTimestamp", "ending_offsets_by_timestamp", BATCH),
    ("endingOffsets", "ending_offsets", BATCH),
    ("maxOffsetsPerTrigger", "max_offsets_per_trigger", STREAM),
    ("minOffsetsPerTrigger", "min_offsets_per_trigger", STREAM),
    ("maxTriggerDelay", "max_trigger_delay", STREAM),
    ("minPartitions", "min_partitions", BOTH),
    ("groupIdPrefix", "group_id_prefix", BOTH),
)


def connector(config: Config) -> str:
    """Return the format with which records are read from the topic, and dead letters are written."""
    return KAFKA if config.source.connector == TABLE else config.source.connector


def options(config: Config, *, batch: bool = False) -> dict[str, str]:
    source = config.source
    found = {
        **selection(config, source),
        "includeHeaders": "true",
        "failOnDataLoss": str(source.fail_on_data_loss).lower(),
    }
    for option, setting, where in OPTIONS:
        value = getattr(source, setting)
        if value and where in (BOTH, BATCH if batch else STREAM):
            found[option] = str(value)
    if batch and found.get("startingOffsets") == "latest":
        raise PipelineError(
            "a batch cannot start at latest", remedy="give source.starting_offsets as earliest or JSON, or a time"
        )
    if not batch and (source.ending_offsets or source.ending_timestamp or source.ending_offsets_by_timestamp):
        raise PipelineError("a stream has no end", remedy='use `ottla-pipeline backfill`, or trigger = "once"')
    if source.connector == OTTLA and config.pipeline.trigger == "once":
        found.pop("maxOffsetsPerTrigger", None)  # this source would end after the first micro-batch: docs/SPARK.md
    if not batch and not source.starting_timestamp and not source.starting_offsets_by_timestamp:
        found.pop("startingOffsetsByTimestampStrategy", None)
    return {**found, **client_options(config)}


def client_options(config: Config) -> dict[str, str]:
    """Return the options `kafka.*`, which are the same for source and sink."""
    for name in config.kafka.options:
        if name.removeprefix("kafka.") in FORBIDDEN:
            raise PipelineError(
                f"kafka.options has {name}, which Spark sets itself",
                remedy="remove it; [source] says where reading starts",
            )
    given = {f"kafka.{name.removeprefix('kafka.')}": value for name, value in config.kafka.options.items()}
    return {"kafka.bootstrap.servers": config.kafka.bootstrap_servers, **given}


def selection(config: Config, source: Source) -> dict[str, str]:
    if source.assign:
        return {"assign": source.assign}
    if source.subscribe_pattern:
        return {"subscribePattern": source.subscribe_pattern}
    return {"subscribe": source.subscribe or config.kafka.events}
