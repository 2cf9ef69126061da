"""A query asks a registry before it begins: the schemas of columns, and mistakes in options, with a stand-in for the registry."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs_packages

needs_packages("pyspark", "pyarrow", "fastavro")

from ottla.spark.errors import ConnectorError
from ottla.spark.options import ConnectorOptions
from ottla.spark.schema.options import SchemaOptions
from ottla.spark.schema.subjects import client_of
from ottla.spark.source import OttlaDataSource
from tests.ottla.columns.avro.values import record
from tests.ottla.registry.stand_in import registry_of
from tests.ottla.registry.test_client_login import server

ADDRESS = record(("city", "string"), name="shop.Address")
ORDER = record(("id", "long"), ("to", "shop.Address"), name="shop.Order")
REFERENCES = [{"name": "shop.Address", "subject": "address", "version": 1}]


def rows() -> dict[str, Any]:
    order = {"schema": json.dumps(ORDER), "references": REFERENCES}
    return {
        "/subjects/t-value/versions/latest": {"subject": "t-value", "version": 2, "id": 7, **order},
        "/subjects/t-value/versions/1": {"subject": "t-value", "version": 1, "id": 5, "schema": '"long"'},
        "/subjects/t-key/versions/latest": {"subject": "t-key", "version": 1, "id": 6, "schema": '"string"'},
        "/subjects/json-value/versions/latest": {"version": 1, "id": 8, "schema": "{}", "schemaType": "JSON"},
        "/subjects/tree-value/versions/latest": {"version": 1, "id": 9, "schema": "-"},
        "/subjects/address/versions/1": {"subject": "address", "version": 1, "id": 1, "schema": json.dumps(ADDRESS)},
        "/schemas/ids/5": {"schema": '"long"'},
        "/schemas/ids/6": {"schema": '"string"'},
        "/schemas/ids/7": order,
        "/schemas/ids/8": {"schema": "{}", "schemaType": "JSON"},
        "/schemas/ids/9": {"schema": json.dumps(record(("next", ["null", "R"])))},
    }


def source(url: str, **given: str) -> OttlaDataSource:
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "table": "schema",
        "schema.registry.url": url,
        "subscribe": "t",
    }
    named = {name.replace("_", "."): text for name, text in given.items()}
    return OttlaDataSource({name: text for name, text in {**options, **named}.items() if text})


#: Options, and the resulting types of the columns.
COLUMNS = {
    "the latest version": ({"columns": "value,offset"}, "value STRUCT<`id`: BIGINT, `to`: STRUCT<`city`: STRING>>, offset BIGINT"),
    "a version": ({"columns": "key,value", "valueVersion": "1"}, "key BINARY, value BIGINT"),
    "a key": ({"columns": "key", "keyVersion": "latest"}, "key STRING"),
    "subjects": ({"columns": "value,key", "keySubject": "t-key", "valueSubject": "t-key"}, "value STRING, key STRING"),
    "fields": ({"columns": "Value.to,offset,value.id"}, "value STRUCT<`id`: BIGINT, `to`: STRUCT<`city`: STRING>>, offset BIGINT"),
    "one field": ({"columns": "value.id"}, "value STRUCT<`id`: BIGINT>"),
    "no decoded column": ({"columns": "offset"}, "offset BIGINT"),
    "partitions of one topic": ({"subscribe": "", "assign": '{"t": [0]}', "columns": "value", "valueVersion": "1"}, "value BIGINT"),
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_have_the_types_of_the_schemas_that_options_name(name: str) -> None:
    given, expected = COLUMNS[name]
    with registry_of(rows()) as (url, _):
        assert source(url, **given).schema() == expected


def test_a_version_that_is_registered_while_a_query_is_planned_changes_nothing() -> None:
    table = rows()
    with registry_of(table) as (url, _):
        planned = source(url, columns="value")
        assert planned.schema().startswith("value STRUCT")
        table["/subjects/t-value/versions/latest"] |= {"version": 3, "id": 5}
        (schema,) = pickle.loads(pickle.dumps(planned)).reader(None).schemas
    assert schema.schema_id == 7


def test_a_login_stands_in_the_address_or_in_an_option_of_its_own() -> None:
    for given, expected in (({"basic_auth_user_info": "user:w:d"}, ("user", "w:d")), ({}, (None, None))):
        how = SchemaOptions(ConnectorOptions(source("http://other:word@here", **given).options))
        assert (how.user, how.password) == expected


def test_a_login_stands_in_a_file_in_place_of_options(tmp_path: Path) -> None:
    file = tmp_path / "registry.properties"
    file.write_text("basic.auth.user.info=user:w:d\n")
    with server(None) as (url, got):
        planned = pickle.loads(pickle.dumps(source(url, schema_registry_config=str(file))))
        assert client_of(SchemaOptions(ConnectorOptions(planned.options))).subjects() == []
    assert got == ["Basic " + base64.b64encode(b"user:w:d").decode()]


def test_a_context_names_its_ids() -> None:
    table = rows()
    table["/subjects/%3A.dev%3At-value/versions/latest"] = {"version": 1, "id": 5}
    table["/schemas/ids/5?subject=%3A.dev%3At-value"] = {"schema": '"int"'}
    with registry_of(table) as (url, asked):
        assert source(url, valueSubject=":.dev:t-value", columns="value").schema() == "value INT"
    assert asked == ["/subjects/%3A.dev%3At-value/versions/latest", "/schemas/ids/5?subject=%3A.dev%3At-value"]


MISTAKES: dict[str, tuple[dict[str, str], str]] = {
    "no address": ({"schema_registry_url": ""}, "option schema.registry.url is missing"),
    "a subject that is not there": ({"valueSubject": "other-value"}, "other-value: Schema not found; options valueSubject and valueVersion"),
    "a version that is not there": ({"valueVersion": "9"}, "t-value: Schema not found; options"),
    "a version that is none": ({"valueVersion": "new"}, "option valueVersion is new; it is latest or a number above 0"),
    "JSON Schema": ({"valueSubject": "json-value"}, "json-value: the schema is of JSON, where Avro is read; read table=records"),
    "a recursive schema": ({"valueSubject": "tree-value"}, r"tree-value \(id 9\): the schema is recursive"),
    "several topics": ({"subscribe": "t,u"}, "option valueSubject is missing; it is needed unless one topic is read"),
    "a mode that from_avro has not": ({"mode": "DROPMALFORMED"}, "option mode is DROPMALFORMED; the table schema has FAILFAST and PERMISSIVE"),
    "a column that is not there": ({"columns": "offset,values"}, "option columns has values; the columns are key"),
    "a field that is not there": ({"columns": "value.ID"}, "t-value .*it has no field ID; its fields are id, to"),
    "a field of a key that is not decoded": ({"columns": "key.id"}, "option columns has fields of key, which is not decoded"),
    "a field of a number": ({"columns": "offset.id"}, "option columns has offset.id"),
    "no columns": ({"columns": " , "}, "option columns is ' , '"),
    "a login without a password": ({"basic_auth_user_info": "user"}, "option basic.auth.user.info is missing, or has no colon"),
    "a login from elsewhere": ({"basic_auth_credentials_source": "SASL_INHERIT"}, "it is URL or USER_INFO"),
    "a file of the login that is not there": ({"schema_registry_config": "/no"}, "option schema.registry.config: .*/no"),
    "a login in two places": ({"schema_registry_config": "/no", "basic_auth_user_info": "u:p"}, "option schema.registry.config excludes"),
    "certificates that are not there": ({"schema_registry_url": "https://127.0.0.1:1", "schema_registry_ssl_truststore_location": "/no"}, "/no cannot be read"),
    "a registry that is away": ({"schema_registry_url": "http://127.0.0.1:1"}, "the schema registry at http://127.0.0.1:1 cannot be reached"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_explained(name: str) -> None:
    given, said = MISTAKES[name]
    with registry_of(rows()) as (url, _), pytest.raises(ConnectorError, match=said):
        source(url, **given).schema()
