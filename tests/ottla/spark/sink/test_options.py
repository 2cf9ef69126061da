"""The options of a write and the columns of its DataFrame, and the message about each wrong one."""

from __future__ import annotations

import pytest

from tests.needs import needs_packages

needs_packages("pyspark", "pyarrow")

from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType

from ottla.spark.errors import ConnectorError
from ottla.spark.sink.options import SinkOptions

TOPIC = {"topic": "orders"}


def _frame(**types: DataType) -> StructType:
    return StructType([StructField(name, each) for name, each in types.items()])


VALUE = _frame(value=StringType())


def test_a_write_is_exactly_once_unless_the_user_does_not_want_it() -> None:
    assert SinkOptions(TOPIC, VALUE, is_stream=True).is_exactly_once
    assert not SinkOptions({**TOPIC, "EXACTLYONCE": "False"}, VALUE, is_stream=True).is_exactly_once


def test_a_column_of_topics_takes_the_place_of_the_option() -> None:
    assert SinkOptions({}, _frame(value=StringType(), topic=StringType()), is_stream=False).topic is None


def test_two_runs_of_a_write_without_a_query_are_different() -> None:
    assert SinkOptions(TOPIC, VALUE, is_stream=False).run != SinkOptions(TOPIC, VALUE, is_stream=False).run


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"exactlyOnce": "yes"}, "option exactlyOnce is yes"),
        ({"kafka.compression.type": "brotli"}, "kafka.compression.type is brotli"),
        ({"sinkId": "a/b", "batchId": "1"}, "option sinkId is a/b"),
        ({"sinkId": "a", "batchId": "first"}, "option batchId is first"),
        ({"sinkId": "a"}, "a batch has sinkId and batchId together"),
        ({"batchId": "1"}, "a batch has sinkId and batchId together"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConnectorError) as caught:
        SinkOptions({**TOPIC, **given}, VALUE, is_stream=False)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        (_frame(value=StringType(), offset=LongType()), "the sink has no column offset"),
        (_frame(key=StringType()), "the column value is missing"),
        (_frame(value=StringType()), "the sink does not know where to write"),
        (_frame(value=IntegerType(), topic=StringType()), "the column value is int"),
        (_frame(value=StringType(), topic=IntegerType()), "the column topic is no STRING"),
        (_frame(value=StringType(), topic=StringType(), partition=LongType()), "the column partition is no INT"),
        (_frame(value=StringType(), topic=StringType(), headers=StringType()), "the column headers is no ARRAY"),
    ],
)
def test_a_wrong_column_is_named(frame: StructType, sentence: str) -> None:
    with pytest.raises(ConnectorError) as caught:
        SinkOptions({}, frame, is_stream=False)
    assert str(caught.value).startswith(sentence)
