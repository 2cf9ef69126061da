"""All settings of the pipeline: one dataclass per section, read from one TOML file, documented by `ottla-pipeline config`.

A setting that is not in the file keeps its default. An unknown name is rejected, and the message suggests the most similar one:
a mistyped setting that is ignored may cost a night of work.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from ottla.pipeline import login
from ottla.pipeline.errors import PipelineError


def setting(default: Any, doc: str) -> Any:
    """Return a field with its line of documentation."""
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, slots=True)
class Kafka:
    """The address of the cluster, and the topics."""

    bootstrap_servers: str = setting("localhost:9092", "host:port, comma separated")
    events: str = setting(
        "events", "topic of the raw events: what `generate` writes to and, unless [source] says otherwise, bronze reads"
    )
    dead_letters: str = setting("events.dead-letters", "topic for rows that silver rejects")
    pages: str = setting("gold.pages", "compacted topic of the windowed counts")
    sessions: str = setting("gold.sessions", "compacted topic of the sessions")
    partitions: int = setting(4, "partitions of topics that are created")
    replication_factor: int = setting(
        -1, "replicas of topics that are created; -1 is the cluster's default.replication.factor"
    )
    options: dict[str, str] = field(
        default_factory=dict,
        metadata={"doc": 'passed to every Kafka client of Spark as kafka.*, as "security.protocol" = "SASL_SSL"'},
    )


#: The source of the events. With the last one the brokers' own table is bronze, and there is no bronze stage.
CONNECTORS = KAFKA, OTTLA, TABLE = "kafka", "ottla", "table"


@dataclass(frozen=True, slots=True)
class Source:
    """Options of Spark's Kafka source, under their own names in snake case."""

    connector: str = setting(
        KAFKA,
        "kafka: Spark's own, in Java; ottla: docs/SPARK.md, whose sink writes dead letters once; table: silver reads the brokers' table "
        "(docs/TABLES.md), and there is no bronze stage",
    )
    tables: str = setting(
        "", "folder in which brokers keep topics' tables (ottla.table.location), for table and for the report"
    )
    table_interval_ms: int = setting(
        1_000, "ottla.table.commit.interval.ms of the topic, if it is created here for table"
    )
    subscribe: str = setting("", "topics, comma separated; empty: kafka.events")
    subscribe_pattern: str = setting("", "topics by a Java regular expression; wins over subscribe")
    assign: str = setting("", 'partitions as JSON, {"events":[0,1]}; wins over both')
    starting_offsets: str = setting("earliest", "earliest, latest or JSON; only for a query without a checkpoint")
    starting_timestamp: str = setting(
        "", "start at this epoch time in ms in every partition; wins over starting_offsets"
    )
    starting_offsets_by_timestamp: str = setting("", 'the same by partition as JSON, {"events":{"0":1700000000000}}')
    starting_offsets_by_timestamp_strategy: str = setting("latest", "error or latest: where no record is that young")
    ending_offsets: str = setting("", "latest or JSON; batch only")
    ending_timestamp: str = setting("", "end before this epoch time in ms; batch only")
    ending_offsets_by_timestamp: str = setting("", "the same by partition as JSON; batch only")
    fail_on_data_loss: bool = setting(True, "stop when offsets that were not read yet are gone")
    max_offsets_per_trigger: int = setting(0, "offsets of one micro-batch at most; 0: no limit")
    min_offsets_per_trigger: int = setting(0, "wait for as many offsets; 0: do not wait")
    max_trigger_delay: str = setting("", "but not longer than this, for example 15m")
    min_partitions: int = setting(0, "Spark tasks at least: large Kafka partitions are split; 0: one task each")
    group_id_prefix: str = setting(
        "ottla-pipeline", "prefix of the consumer group names, which are new for every query"
    )


@dataclass(frozen=True, slots=True)
class Spark:
    """The Spark session. Under spark-submit, its master and options win."""

    master: str = setting("local[2]", "local[N], or the address of an existing cluster")
    app_name: str = setting("ottla-pipeline", "shown in Spark's own pages")
    driver_memory: str = setting("1g", "heap of the driver, which is everything in local mode")
    jars: str = setting(
        "build/spark-jars", "folder of connector jars; without one they are fetched by spark.jars.packages"
    )
    shuffle_partitions: int = setting(2, "tasks of each stateful step; a checkpoint keeps the number it began with")
    options: dict[str, str] = field(
        default_factory=dict, metadata={"doc": 'any other property of Spark, "spark.sql.x" = "y"'}
    )


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The folders of the results, and the triggers."""

    output: str = setting(
        "pipeline-data", "folder for tables, checkpoints and progress; local or mounted where the driver runs"
    )
    trigger: str = setting("2 seconds", 'interval between micro-batches, or "once": all there is, then end')
    watermark: str = setting(
        "10 minutes", "how long state is kept for duplicates and late rows; must exceed max_lateness"
    )
    max_lateness_ms: int = setting(120_000, "an event older than this when Kafka got it is a dead letter (too-late)")
    max_ahead_ms: int = setting(5_000, "an event further ahead of Kafka's clock is a dead letter (in-the-future)")
    window_seconds: int = setting(10, "length of the windows that page views are counted in")
    session_gap_seconds: int = setting(10, "a user silent for so long begins a new session")
    session_buckets: int = setting(
        16, "groups that users are hashed into for sessions; a checkpoint keeps the number it began with"
    )
    schemas: str = setting("", "folder of Avro schemas named <id>.avsc; empty: those shipped here")
    upsert_format: str = setting(
        "",
        "of gold's tables: delta or parquet; empty: delta where delta-spark and its jars are installed. A table keeps its own",
    )
    files_per_trigger: int = setting(200, "Parquet files silver and gold take into one micro-batch at most")


@dataclass(frozen=True, slots=True)
class Config:
    kafka: Kafka = field(default_factory=Kafka)
    source: Source = field(default_factory=Source)
    spark: Spark = field(default_factory=Spark)
    pipeline: Pipeline = field(default_factory=Pipeline)

    def path(self, *parts: str) -> str:
        """Return a folder under the output."""
        return str(Path(self.pipeline.output).absolute().joinpath(*parts))

    def checkpoint(self, query: str) -> str:
        return self.path("checkpoints", query)


SECTIONS = ("kafka", "source", "spark", "pipeline")


def load(path: str | None, overrides: tuple[str, ...] = (), client_properties: str | None = None) -> Config:
    """Return the configuration of the file, changed by each `section.name=value`.

    `client_properties` is the path of a file. [kafka.options] wins over it.
    """
    config = Config()
    properties = login.read(client_properties) if client_properties else {}
    if bootstrap := properties.pop(login.BOOTSTRAP, ""):
        config = changed(config, "kafka", "bootstrap_servers", bootstrap, str(client_properties))
    if path:
        try:
            found = tomllib.loads(Path(path).read_text())
        except OSError as error:
            raise PipelineError(f"cannot read {path}: {error.strerror}", remedy="check --config") from None
        except tomllib.TOMLDecodeError as error:
            raise PipelineError(
                f"{path} is not TOML: {error}", remedy="`ottla-pipeline config` prints a complete example"
            ) from None
        for section, values in found.items():
            if not isinstance(values, dict):
                raise PipelineError(
                    f"{path}: {section} stands outside a section", remedy=f"put it under one of {list(SECTIONS)}"
                )
            for name, value in values.items():
                config = changed(config, section, name, value, path)
    for override in overrides:
        name, equals, text = override.partition("=")
        section, dot, key = name.partition(".")
        if not (equals and dot):
            raise PipelineError(
                f"--set {override} is not section.name=value", remedy="for example --set pipeline.trigger='5 seconds'"
            )
        config = changed(config, section, key, text, "--set")
    config = replace(config, kafka=replace(config.kafka, options={**properties, **config.kafka.options}))
    check(config)
    return config


#: The option --config of all commands.
FILES: dict[str, Any] = {
    "metavar": "FILE",
    "action": "append",
    "help": "TOML (`ottla-pipeline config` prints one with every setting); a name that ends in .properties has the client "
    f"properties of Kafka with which to log in (also: {login.VARIABLE}). May be given once for each",
}


def files(given: list[str] | None, environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Separate the settings files and the client properties files among those of --config."""
    settings = [path for path in given or () if not path.endswith(".properties")]
    properties = [path for path in given or () if path.endswith(".properties")]
    if max(len(settings), len(properties)) > 1:
        raise PipelineError(
            f"--config names {', '.join(settings if len(settings) > 1 else properties)}", remedy="give one of each kind"
        )
    return next(iter(settings), None), next(iter(properties), environment.get(login.VARIABLE))


def changed(config: Config, section: str, name: str, value: Any, where: str) -> Config:
    """Return the configuration with one setting replaced. Numbers and booleans may be given as text."""
    if section not in SECTIONS:
        raise unknown(f"section [{section}]", section, SECTIONS, where)
    part = getattr(config, section)
    hints = get_type_hints(type(part))
    head, dot, rest = name.partition(".")
    if dot and head == "options":  # --set kafka.options.security.protocol=SSL
        return replace(config, **{section: replace(part, options={**part.options, rest: str(value)})})
    if name not in hints:
        raise unknown(f"{section}.{name}", name, tuple(hints), where)
    return replace(
        config, **{section: replace(part, **{name: as_type(f"{section}.{name}", value, hints[name], where)})}
    )


def as_type(name: str, value: Any, hint: Any, where: str) -> Any:
    if get_origin(hint) is dict:
        if isinstance(value, dict):
            return {key: str(each).lower() if isinstance(each, bool) else str(each) for key, each in value.items()}
        raise PipelineError(
            f"{where}: {name} must be a table of {get_args(hint)[1].__name__}", remedy=f"write [{name}]"
        )
    if hint is str and isinstance(value, dict | list):
        return json.dumps(value)  # assign and offsets are easier to read as TOML tables
    try:
        if hint is bool:
            return {"true": True, "false": False}[str(value).lower()]
        if hint is int:
            return int(str(value))
        return str(value)
    except (KeyError, ValueError):
        raise PipelineError(
            f"{where}: {name} = {value!r} is not of type {hint.__name__}", remedy="correct it"
        ) from None


def unknown(what: str, name: str, known: tuple[str, ...], where: str) -> PipelineError:
    near = difflib.get_close_matches(name, known, 1)
    return PipelineError(
        f"{where}: there is no {what}", remedy=f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    )


DURATION_UNITS_MS = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}


def duration_ms(text: str, name: str) -> int:
    """Return an interval of Spark, such as `10 minutes`, in ms.

    It reads the part of Spark's language that watermarks and triggers need.
    """
    number, _, unit = text.partition(" ")
    factor = DURATION_UNITS_MS.get(unit.strip().lower().removesuffix("s"))
    if factor is None or not number.isdigit():
        raise PipelineError(
            f"{name} = {text!r} is not a duration", remedy="write for example '10 minutes' or '5 seconds'"
        )
    return int(number) * factor


def check(config: Config) -> None:
    """Check the relations between settings."""
    pipeline = config.pipeline
    if pipeline.trigger != "once":
        duration_ms(pipeline.trigger, "pipeline.trigger")
    if duration_ms(pipeline.watermark, "pipeline.watermark") <= pipeline.max_lateness_ms + pipeline.max_ahead_ms:
        raise PipelineError(
            f"pipeline.watermark = {pipeline.watermark} is not longer than max_lateness_ms + max_ahead_ms",
            remedy="raise it: rows behind the watermark would be dropped without a dead letter",
        )
    for name in ("window_seconds", "session_gap_seconds", "session_buckets", "files_per_trigger"):
        if getattr(pipeline, name) < 1:
            raise PipelineError(f"pipeline.{name} = {getattr(pipeline, name)}", remedy="it must be 1 or more")
    if pipeline.upsert_format not in ("", "delta", "parquet"):
        raise PipelineError(
            f"pipeline.upsert_format = {pipeline.upsert_format}", remedy="it is delta, parquet or empty"
        )
    check_source(config.source)


def check_source(source: Source) -> None:
    """Check the connector, and the settings that are JSON in Spark's form."""
    if source.connector not in CONNECTORS:
        raise PipelineError(f"source.connector = {source.connector}", remedy=f"it is one of {', '.join(CONNECTORS)}")
    if source.connector == TABLE and not source.tables:
        raise PipelineError(
            "source.tables is empty", remedy="name the folder that brokers have as ottla.table.location"
        )
    if source.connector == TABLE and (source.subscribe or source.subscribe_pattern or source.assign):
        raise PipelineError(
            "source.subscribe, subscribe_pattern and assign have no table", remedy="name the topic by kafka.events"
        )
    for name in ("starting_offsets", "ending_offsets"):
        text = getattr(source, name)
        if text and text not in ("earliest", "latest"):
            by_partition(f"source.{name}", text)
    for name in ("starting_offsets_by_timestamp", "ending_offsets_by_timestamp"):
        if getattr(source, name):
            by_partition(f"source.{name}", getattr(source, name))
    if source.assign:
        found = json_of("source.assign", source.assign, '{"events":[0,1]}')
        if not all(isinstance(each, list) and all(type(n) is int for n in each) for each in found.values()):
            raise PipelineError("source.assign names no partitions", remedy='write for example {"events":[0,1]}')
    if source.starting_offsets_by_timestamp_strategy not in ("error", "latest"):
        raise PipelineError(
            f"source.starting_offsets_by_timestamp_strategy = {source.starting_offsets_by_timestamp_strategy}",
            remedy="it is error or latest",
        )


def by_partition(name: str, text: str) -> None:
    found = json_of(name, text, '{"events":{"0":12}}')
    if not all(isinstance(each, dict) and all(type(n) is int for n in each.values()) for each in found.values()):
        raise PipelineError(f"{name} has no number for each partition", remedy='write for example {"events":{"0":12}}')


def json_of(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise PipelineError(f"{name} is not JSON: {error}", remedy=f"write for example {example}") from None
    if not isinstance(found, dict):
        raise PipelineError(f"{name} names no topics", remedy=f"write for example {example}")
    return found


def documented(config: Config | None = None) -> Iterator[str]:
    """Return the lines of a TOML file with every setting, its meaning and its value."""
    config = config or Config()
    for section in SECTIONS:
        part = getattr(config, section)
        yield f"# {(type(part).__doc__ or '').strip()}"
        yield f"[{section}]"
        for each in fields(part):
            value = getattr(part, each.name)
            if isinstance(value, dict):
                value = login.shown(value)
            shown = (
                "{" + ", ".join(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in value.items()) + "}"
                if isinstance(value, dict)
                else json.dumps(value)
            )
            yield f"# {each.metadata['doc']}"
            yield f"{each.name} = {shown}"
        yield ""
