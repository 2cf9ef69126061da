"""The options of the sink, and the columns that a DataFrame must have. It has no I/O."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructType

from ottla.protocol.records.compression import CODEC_IDS
from ottla.spark.errors import ConnectorError
from ottla.spark.options import client_properties

COLUMNS = ("key", "value", "headers", "topic", "partition")
BATCHES_TOPIC = "ottla-spark-batches"
ID_PREFIX = "ottla-spark-"
#: The brokers' default of transaction.max.timeout.ms: the time that may pass between the tasks of a micro-batch and its commit.
TRANSACTION_TIMEOUT_MS = 15 * 60 * 1000


class SinkOptions:
    """The options of a write. Raises ConnectorError for an option or a column that is missing or wrong."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, is_stream: bool) -> None:
        options = {name.lower(): value for name, value in given.items()}

        def get(name: str) -> str | None:
            return options.get(name.lower())

        self.client = client_properties(given)
        self.is_stream = is_stream
        #: The run id of a write that is no streaming query (which has its own).
        self.run = uuid.uuid4().hex
        self.topic = options.get("topic")
        codec = self.client.get("compression.type", "none").lower()
        if codec not in CODEC_IDS:
            raise ConnectorError(f"kafka.compression.type is {codec}", f"it is one of {', '.join(CODEC_IDS)}")
        self.codec = CODEC_IDS[codec]
        exactly_once = (get("exactlyOnce") or "true").lower()
        if exactly_once not in ("true", "false"):
            raise ConnectorError(f"option exactlyOnce is {exactly_once}", "it is true or false")
        self.is_exactly_once = exactly_once == "true"
        self.sink_id = get("sinkId")
        if "/" in (self.sink_id or ""):
            raise ConnectorError(f"option sinkId is {self.sink_id}", "it is a name without a slash")
        self.batch_id = _number(options, "batchId")
        self.batches_topic = get("batchesTopic") or BATCHES_TOPIC
        self.id_prefix = get("transactionalIdPrefix") or ID_PREFIX
        self.timeout_ms = _number(options, "transactionTimeoutMs") or TRANSACTION_TIMEOUT_MS
        if not is_stream and (self.batch_id is None) != (self.sink_id is None):
            raise ConnectorError(
                "a batch has sinkId and batchId together, or none of them",
                "in foreachBatch: sinkId is a name of your own, batchId the number that is handed over",
            )
        _check_columns(schema, self.topic)


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is not None and not text.isdigit():
        raise ConnectorError(f"option {name} is {text}", "it is a number")
    return None if text is None else int(text)


def _check_columns(schema: StructType, topic: str | None) -> None:
    types = {field.name: field.dataType for field in schema.fields}
    if unknown := [name for name in types if name not in COLUMNS]:
        raise ConnectorError(f"the sink has no column {unknown[0]}", f"it takes {', '.join(COLUMNS)}: select them")
    if "value" not in types:
        raise ConnectorError("the column value is missing", "select it, as BINARY or STRING")
    if topic is None and "topic" not in types:
        raise ConnectorError("the sink does not know where to write", "give the option topic, or a column topic")
    for name in ("key", "value"):
        if not isinstance(types.get(name, BinaryType()), BinaryType | StringType):
            raise ConnectorError(f"the column {name} is {types[name].simpleString()}", "it is BINARY or STRING")
    if not isinstance(types.get("topic", StringType()), StringType):
        raise ConnectorError("the column topic is no STRING")
    if not isinstance(types.get("partition", IntegerType()), IntegerType):
        raise ConnectorError("the column partition is no INT")
    if not isinstance(types.get("headers", ArrayType(StringType())), ArrayType):
        raise ConnectorError("the column headers is no ARRAY<STRUCT<key: STRING, value: BINARY>>")
