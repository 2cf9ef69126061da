"""Configurations of topics that are tables (docs/TABLES.md): the topic's own, and the broker's, two of which are defaults for
topics.
"""

from __future__ import annotations

from ottla.server.config.key import BOOLEAN, LIST, LONG, MEDIUM, STRING, ConfigError, ConfigKey, table
from ottla.server.config.validators import at_least, names, no_password, one_of

FORMAT, LOCATION, CATALOG = "ottla.table.format", "ottla.table.location", "ottla.table.catalog"
KEY, VALUE, DLQ = "ottla.table.key", "ottla.table.value", "ottla.table.dlq"
PARTITION = "ottla.table.partition"
#: Rejected records become rows of a second table, or are only counted: NONE.
DLQ_TABLE = "table"
INTERVAL, HOLD, HOLD_MAX = "ottla.table.commit.interval.ms", "ottla.table.retention.hold", "ottla.table.hold.ms.max"
ALLOWED, CALL_TIMEOUT = "ottla.table.allowed.places", "ottla.table.call.timeout.ms"
MAINTENANCE = "ottla.table.maintenance.interval.ms"
REGISTRY, REGISTRY_CONFIG = "ottla.table.registry", "ottla.table.registry.config"
#: The values of ottla.table.format; NONE means no table.
NONE, ICEBERG, DELTA, PARQUET = "none", "iceberg", "delta", "parquet"
FORMATS = (ICEBERG, DELTA, PARQUET)
BYTES, TEXT = "bytes", "string"
#: Columns by a JSON Schema, and by the schema whose id is in each value.
JSON, BY_REGISTRY = "json", "registry"
TYPED = (JSON, BY_REGISTRY)
#: The possible forms of keys and values.
FORMS = (BYTES, TEXT, *TYPED)
#: The values of ottla.table.partition: one part for each day or hour of the records' times, or no partitioning.
UNPARTITIONED, DAY, HOUR = "none", "day", "hour"
#: This value of ottla.table.catalog means no catalog: only the metadata's files.
FILES = "files"
#: The suffix of a table of rejected records. A topic with this suffix has no table, because it would be in that one's place.
REJECTED_SUFFIX = "__dlq"
#: `ottla.table.store.NAME=VALUE` in the node's file is an option of the store or of the catalog, such as a key. Unknown names
#: are hidden.
STORE_OPTION = "ottla.table.store."
_IN_STORE_OPTIONS = f"give it as {STORE_OPTION}NAME in the brokers' files, such as {STORE_OPTION}secret_access_key"
_IN_URI = f"give a database's whole address as {STORE_OPTION}uri in the brokers' files, and here the address without it"
_IN_FILE = f"put the login into the file that {REGISTRY_CONFIG} names"


def _places(name: str, value: list[str]) -> None:
    names()(name, value)
    no_password(_IN_URI)(name, value)


def partitioned_by(name: str, value: object) -> None:
    """Raise ConfigError for a partitioning that does not exist."""
    if value not in (UNPARTITIONED, DAY, HOUR):
        text = f"{name}={value}: tables are partitioned by {DAY} or {HOUR} of _kafka.timestamp, or by nothing ({UNPARTITIONED})"
        raise ConfigError(name, value, text, message=text)


# fmt: off
TABLE_TOPIC_CONFIGS = table(
    ConfigKey(KEY, STRING, BYTES, MEDIUM,
        "How keys become a column of the topic's table: bytes as they are, string for UTF-8, or by the latest schema of the registry's "
        "subject TOPIC-key, registry (with the schema's id before the bytes) or json.", one_of(*FORMS)),
    ConfigKey(VALUE, STRING, BYTES, MEDIUM,
        "How values become columns of the topic's table: bytes, string for UTF-8, or by the latest schema of the subject TOPIC-value: "
        "registry (with its id before the bytes) or json. What does not fit is rejected.", one_of(*FORMS)),
    ConfigKey(DLQ, STRING, DLQ_TABLE, MEDIUM,
        "Where records go that do not fit the columns of the topic's table: table, they are rows of a table TOPIC__dlq with the reason; "
        "none, they are left out and counted.", one_of(DLQ_TABLE, NONE)),
    ConfigKey(FORMAT, STRING, NONE, MEDIUM,
        "The format in which the topic's committed records are also a table: iceberg, delta or parquet; none for no table.",
        one_of(NONE, *FORMATS)),
    ConfigKey(PARTITION, STRING, UNPARTITIONED, MEDIUM,
        "By what the topic's table is partitioned when it is made: day or hour of the records' timestamps (_kafka.timestamp), or none. "
        "A table stays what it is; ottla table rebuild makes it again.", partitioned_by),
    ConfigKey(INTERVAL, LONG, 60_000, MEDIUM,
        "How often new records are committed to the topic's table.", at_least(100)),
    ConfigKey(HOLD, BOOLEAN, True, MEDIUM,
        "Whether retention and compaction leave segments that the topic's table does not have yet, for ottla.table.hold.ms.max."),
    ConfigKey(HOLD_MAX, LONG, 86_400_000, MEDIUM,
        "How long at most a segment that retention or compaction would take waits for the topic's table.", at_least(0)),
)

TABLE_BROKER_CONFIGS = table(
    ConfigKey(LOCATION, STRING, None, MEDIUM,
        "Below which path or address (s3://, gs://, az://, file://) topics' tables lie. All brokers must reach the same place.",
        no_password(_IN_STORE_OPTIONS)),
    ConfigKey(CATALOG, STRING, FILES, MEDIUM,
        "The catalog of Iceberg tables: files alone, the address of a REST catalog, or that of a database.", no_password(_IN_URI)),
    ConfigKey(ALLOWED, LIST, [], MEDIUM,
        "What else topics may set as ottla.table.location (or lie below) and as ottla.table.catalog, besides this broker's own; * for "
        "anything.", _places),
    ConfigKey(REGISTRY, STRING, None, MEDIUM,
        "The addresses of the schema registry whose schemas make columns, http://HOST:PORT, with commas between them.",
        no_password(_IN_FILE)),
    ConfigKey(REGISTRY_CONFIG, STRING, None, MEDIUM,
        "A file of properties with the login and the certificates for ottla.table.registry."),
    ConfigKey(MAINTENANCE, LONG, 3_600_000, MEDIUM,
        "How often, about, the leader of partition 0 merges small files of the topic's table, ends old versions and deletes what nothing "
        "names; 0 for never.", at_least(0)),
    ConfigKey(CALL_TIMEOUT, LONG, 60_000, MEDIUM,
        "After this time the process that works on tables is ended if it does not answer, and started again. A topic that had no answer has "
        "twice the time at its next attempt, up to eight times.", at_least(1)),
)
# fmt: on
