"""The options of a read: their meaning, and the message about each wrong one."""

from __future__ import annotations

import pytest

from tests.needs import needs_packages

needs_packages("pyspark", "pyarrow")

from ottla.spark.client.offsets import EARLIEST, LATEST, READ_COMMITTED
from ottla.spark.errors import ConnectorError
from ottla.spark.options import COLUMNS, ConnectorOptions, Limit

TOPIC = {"subscribe": "orders"}


def test_a_batch_reads_everything_and_a_stream_what_is_new() -> None:
    batch, stream = ConnectorOptions(TOPIC), ConnectorOptions(TOPIC, is_stream=True)
    assert (batch.starting.everywhere, batch.ending.everywhere) == (EARLIEST, LATEST)
    assert stream.starting.everywhere == LATEST
    assert batch.columns == COLUMNS and batch.fail_on_loss


def test_names_of_options_have_no_case_and_topics_no_order() -> None:
    options = ConnectorOptions({"SUBSCRIBE": " b, a ,b,", "KAFKA.Isolation.Level": "read_committed"})
    assert options.selected == ["a", "b"]
    assert options.isolation == READ_COMMITTED


def test_a_partition_that_is_assigned_twice_is_read_once() -> None:
    assert ConnectorOptions({"assign": '{"t": [1, 0, 1]}'}).selected == [("t", 0), ("t", 1)]


def test_tables_of_the_whole_cluster_need_no_topic() -> None:
    assert ConnectorOptions({"table": "groups"}).selected == ".*"


def test_columns_are_chosen_by_name_and_decoded_ones_by_field() -> None:
    options = ConnectorOptions({**TOPIC, "table": "schema", "columns": "Value.id, value.name, value.id, OFFSET"})
    assert options.columns == ("value", "offset")
    assert options.fields == {"value": ("id", "name")}
    # The whole column is requested as well.
    assert ConnectorOptions({**TOPIC, "table": "schema", "columns": "value,value.id"}).fields == {}
    assert ConnectorOptions({**TOPIC, "includeHeaders": "true"}).columns == (*COLUMNS, "headers")


def test_a_time_is_preferred_to_offsets_by_time_and_those_to_offsets() -> None:
    by_time, by_offset = '{"t": {"0": 1700}}', '{"t": {"0": 12, "1": -2}}'
    given = {**TOPIC, "startingOffsets": by_offset}
    assert ConnectorOptions(given).starting == Limit(None, {("t", 0): 12, ("t", 1): EARLIEST})
    given["startingOffsetsByTimestamp"] = by_time
    assert ConnectorOptions(given).starting == Limit(None, {("t", 0): 1700}, is_time=True)
    given["startingTimestamp"] = "1800"
    assert ConnectorOptions(given).starting == Limit(1800, {}, is_time=True)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "one of the options assign, subscribe and subscribePattern has to be given"),
        ({**TOPIC, "assign": "{}"}, "one of the options assign, subscribe and subscribePattern has to be given"),
        ({"subscribe": " , "}, "option subscribe names no topic"),
        ({"subscribePattern": "("}, "option subscribePattern is no regular expression"),
        ({"assign": '{"t": [-1]}'}, "option assign is"),
        ({"assign": '{"t": [true]}'}, "option assign is"),
        ({"assign": '["t"]'}, "option assign is"),
        ({"assign": "t"}, "option assign is neither a word nor JSON"),
        ({**TOPIC, "table": "rows"}, "option table is rows"),
        ({**TOPIC, "failOnDataLoss": "no"}, "option failOnDataLoss is no"),
        ({**TOPIC, "minPartitions": "0"}, "option minPartitions is 0"),
        ({**TOPIC, "maxRecordsPerPartition": "many"}, "option maxRecordsPerPartition is many"),
        ({**TOPIC, "columns": "colour"}, "option columns has colour"),
        ({**TOPIC, "columns": "value.id"}, "option columns has value.id"),
        ({**TOPIC, "columns": ","}, "option columns is ','"),
        ({**TOPIC, "startingTimestamp": "noon"}, "option startingTimestamp is noon"),
        ({**TOPIC, "startingOffsets": '{"t": 1}'}, "option startingOffsets has no offsets by partition for t"),
        ({**TOPIC, "startingOffsets": '{"t": {"0": -3}}'}, "option startingOffsets has 0: -3 for t"),
        ({**TOPIC, "startingOffsets": "latest"}, "a batch has latest as startingOffsets"),
        ({**TOPIC, "endingOffsets": '{"t": {"0": -2}}'}, "a batch has earliest as endingOffsets"),
        ({**TOPIC, "kafka.isolation.level": "any"}, "kafka.isolation.level is any"),
        ({**TOPIC, "kafka.auto.offset.reset": "latest"}, "option kafka.auto.offset.reset is not supported"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConnectorError) as caught:
        ConnectorOptions(given)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"endingTimestamp": "1700"}, "a stream has no end"),
        ({"table": "groups"}, "the table groups cannot be read as a stream"),
    ],
)
def test_a_stream_has_no_end_and_no_table_of_the_cluster(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConnectorError, match=sentence):
        ConnectorOptions({**TOPIC, **given}, is_stream=True)
