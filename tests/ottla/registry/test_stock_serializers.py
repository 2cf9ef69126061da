"""confluent-kafka's serializers and deserializers of the three formats work with the registry, and `ottla consume` reads their
values.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory

from ottla.registry.formats.proto_descriptor import DEFAULT_NAME
from ottla.registry.formats.proto_schema import ProtobufSchema
from tests.ottla.conftest import Cli
from tests.ottla.registry.instances import Instance

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": ["null", "string"]}],
    }
)
JSON_SCHEMA = json.dumps(
    {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
)
PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Other { int32 n = 1; }
message Order { int64 id = 1; google.protobuf.Timestamp at = 2; message Line { string sku = 1; } repeated Line lines = 3; }
"""


@cache
def order_class() -> Any:
    return message_factory.GetMessageClass(
        ProtobufSchema(PROTO, {}).pool().FindFileByName(DEFAULT_NAME).message_types_by_name["Order"]
    )


def consumed(cli: Cli, registry: Instance, topic: str, *values: bytes) -> list[object]:
    """Return the lines that `ottla consume --registry` prints for values that a stock producer wrote."""
    producer = Producer({"bootstrap.servers": cli.bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    return [json.loads(line) for line in cli.ok("consume", topic, "--registry", registry.url).splitlines()]


def test_avro(cli: Cli, registry: Instance) -> None:
    topic = cli.topic()
    client = SchemaRegistryClient({"url": registry.url})
    context = SerializationContext(topic, MessageField.VALUE)
    order = {"id": 7, "who": "alice"}
    data = AvroSerializer(client, AVRO)(order, context)
    assert data is not None
    assert AvroDeserializer(SchemaRegistryClient({"url": registry.url}))(data, context) == order
    assert client.get_latest_version(f"{topic}-value").version == 1
    assert consumed(cli, registry, topic, data) == [order]


def test_json_schema(cli: Cli, registry: Instance) -> None:
    topic = cli.topic()
    client = SchemaRegistryClient({"url": registry.url})
    context = SerializationContext(topic, MessageField.VALUE)
    data = JSONSerializer(JSON_SCHEMA, client)({"id": 7}, context)
    assert data is not None
    assert JSONDeserializer(None, schema_registry_client=SchemaRegistryClient({"url": registry.url}))(
        data, context
    ) == {"id": 7}
    assert consumed(cli, registry, topic, data) == [{"id": 7}]


def test_protobuf(cli: Cli, registry: Instance) -> None:
    topic = cli.topic()
    client = SchemaRegistryClient({"url": registry.url})
    context = SerializationContext(topic, MessageField.VALUE)
    order = order_class()(id=7, lines=[{"sku": "tea"}])
    data = ProtobufSerializer(order_class(), client, {"use.deprecated.format": False})(order, context)
    assert data is not None
    options = {"use.deprecated.format": False}
    read = ProtobufDeserializer(order_class(), options, SchemaRegistryClient({"url": registry.url}))(data, context)
    assert read is not None and read.lines[0].sku == "tea"
    assert consumed(cli, registry, topic, data) == [{"id": "7", "lines": [{"sku": "tea"}]}]
    registered: Any = registry.ask("GET", f"/subjects/{topic}-value/versions/1")
    assert "message Order {\n  int64 id = 1;" in registered["schema"]


def test_the_stock_client_manages_subjects(registry: Instance) -> None:
    client = SchemaRegistryClient({"url": registry.url})
    client.set_compatibility("managed", "FULL")
    assert client.get_compatibility("managed") == "FULL"
    assert "managed" not in client.get_subjects()
