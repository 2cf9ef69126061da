"""The canonical text of a schema, its normalized form, and texts that are no schema."""

from __future__ import annotations

import base64

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from ottla.registry.checking import parse
from ottla.registry.formats.parsed import InvalidSchema
from ottla.registry.formats.proto_descriptor import DEFAULT_NAME
from ottla.registry.formats.proto_schema import ProtobufSchema

PROTO = """// a comment
syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto"; option java_package = "org.shop";
enum Kind { option allow_alias = true; A = 0; B = 0; reserved 4 to 6, 9; reserved "OLD"; }
message Order { // another
  repeated string lines = 2 [deprecated = true, json_name = "rows"]; optional int32 n = 1;
  map<string, Kind> kinds = 3; oneof who { string name = 4; Inner inner = 5; }
  reserved 8, 10 to max; message Inner { google.protobuf.Timestamp at = 1; } enum E { Z = 0; }
}
service S { rpc Get (Order) returns (stream Order) { option deprecated = true; } }
"""
PRINTED = """syntax = "proto3";
package shop;

import "google/protobuf/timestamp.proto";

option java_package = "org.shop";

message Order {
  reserved 8, 10 to max;

  repeated string lines = 2 [
    deprecated = true,
    json_name = "rows"
  ];
  optional int32 n = 1;
  map<string, Kind> kinds = 3;

  oneof who {
    string name = 4;
    Inner inner = 5;
  }

  message Inner {
    google.protobuf.Timestamp at = 1;
  }
  enum E {
    Z = 0;
  }
}
enum Kind {
  reserved 4 to 6, 9;
  reserved "OLD";
  option allow_alias = true;
  A = 0;
  B = 0;
}

service S {
  rpc Get (Order) returns (stream Order) {
    option deprecated = true;
  };
}
"""


def test_protobuf_is_printed_in_confluents_layout_and_that_text_prints_as_itself() -> None:
    schema = parse("PROTOBUF", PROTO, {})
    schema.check()
    assert schema.canonical == PRINTED
    assert parse("PROTOBUF", PRINTED, {}).canonical == PRINTED


def test_a_descriptor_in_base64_is_the_schema_of_its_text() -> None:
    serialized = parse("PROTOBUF", PRINTED, {}).formatted("serialized")
    made = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(serialized))
    assert [row.name for row in made.message_type] == ["Order"]
    again = parse("PROTOBUF", serialized, {})
    again.check()
    assert again.normalized() == parse("PROTOBUF", PRINTED, {}).normalized()


def test_a_map_of_a_descriptor_is_kept_as_confluents_clients_for_java_send_it() -> None:
    text = 'syntax = "proto3"; package p; message A { map<string, A> rows = 3; reserved 5, 7 to 8; }'
    made = descriptor_pb2.FileDescriptorProto()
    ProtobufSchema(text, {}).pool().FindFileByName(DEFAULT_NAME).CopyToProto(made)
    sent = parse("PROTOBUF", base64.b64encode(made.SerializeToString()).decode(), {})
    assert sent.canonical == (
        'syntax = "proto3";\npackage p;\n\nmessage A {\n  reserved 5;\n  reserved 7 to 8;\n\n'
        "  repeated .p.A.RowsEntry rows = 3;\n\n  message RowsEntry {\n    option map_entry = true;\n  \n"
        "    string key = 1;\n    .p.A value = 2;\n  }\n}\n"
    )
    again = parse("PROTOBUF", sent.canonical, {})
    again.check()
    assert again.normalized() == parse("PROTOBUF", text, {}).normalized()
    assert "map<string, .p.A> rows = 3" in again.normalized()
    assert again.incompatible(parse("PROTOBUF", text, {})) == parse("PROTOBUF", text, {}).incompatible(again) == []


def test_the_descriptor_of_generated_code_is_taken() -> None:
    text = base64.b64encode(timestamp_pb2.DESCRIPTOR.serialized_pb).decode()
    schema = parse("PROTOBUF", text, {})
    schema.check()
    assert 'message Timestamp {\n  int64 seconds = 1 [json_name = "seconds"];\n' in schema.canonical


def test_normalized_protobuf_has_full_names_and_sorted_fields() -> None:
    normal = parse("PROTOBUF", PRINTED, {}).normalized()
    assert normal.index("optional int32 n = 1") < normal.index("repeated string lines = 2")
    assert "map<string, .shop.Kind> kinds = 3" in normal
    assert ".google.protobuf.Timestamp at = 1" in normal
    assert parse("PROTOBUF", normal, {}).normalized() == normal


def test_types_that_confluents_registry_has_built_in_can_be_imported() -> None:
    names = (
        "confluent/meta.proto",
        "confluent/type/decimal.proto",
        "google/type/date.proto",
        "google/protobuf/any.proto",
    )
    for name in names:
        parse("PROTOBUF", f'syntax = "proto3"; import "{name}"; message A {{ int32 n = 1; }}', {}).check()


def test_normalized_avro_has_full_names_and_a_fixed_order() -> None:
    one = '{"type":"record","name":"R","namespace":"a","doc":"d","fields":[{"name":"f","type":{"type":"int"}}],"z":1,"b":2}'
    other = '{"b":2,"z":1,"fields":[{"type":"int","name":"f"}],"doc":"d","name":"a.R","type":"record"}'
    assert parse("AVRO", one, {}).canonical != parse("AVRO", other, {}).canonical
    assert parse("AVRO", one, {}).normalized() == parse("AVRO", other, {}).normalized()


def test_a_resolved_avro_schema_has_the_definitions_of_its_references() -> None:
    inner = '{"type":"record","name":"I","namespace":"n","fields":[]}'
    schema = parse(
        "AVRO",
        '{"type":"record","name":"O","fields":[{"name":"a","type":"n.I"},{"name":"b","type":"n.I"}]}',
        {"n.I": inner},
    )
    schema.check()
    assert schema.formatted("resolved").count('"fields":[]') == 1


def test_json_schemas_refer_to_others_by_the_names_of_their_references() -> None:
    other = '{"$id":"http://x/address.json","definitions":{"city":{"type":"string"}}}'
    for reference in ("address.json#/definitions/city", "http://x/address.json#/definitions/city"):
        name = reference.partition("#")[0]
        parse("JSON", f'{{"properties":{{"a":{{"$ref":"{reference}"}}}}}}', {name: other}).check()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("AVRO", ""),
        ("AVRO", "{"),
        ("AVRO", "string"),
        ("AVRO", '"undefined.Name"'),
        ("AVRO", "7"),
        ("AVRO", '{"type":"record","name":"R"}'),
        ("AVRO", '{"type":"record","name":"R","fields":[{"name":"a"}]}'),
        ("AVRO", '{"type":"record","name":"R","fields":[{"name":"a","type":"S"}]}'),
        ("AVRO", '{"type":"enum","name":"E","symbols":["A","A"]}'),
        ("AVRO", '{"type":"record","name":"1R","fields":[]}'),
        ("AVRO", '["int","int"]'),
        ("AVRO", '{"type":"array","items":' * 5000 + '"int"' + "}" * 5000),
        ("JSON", "{"),
        ("JSON", "[]"),
        ("JSON", '{"type":"foo"}'),
        ("JSON", '{"properties":3}'),
        ("JSON", '{"$ref":"#/definitions/none"}'),
        ("JSON", '{"$ref":"elsewhere.json"}'),
        ("JSON", '{"not":' * 5000 + "{}" + "}" * 5000),
        ("PROTOBUF", ""),
        ("PROTOBUF", "{}"),
        ("PROTOBUF", "message {"),
        ("PROTOBUF", 'syntax = "proto4"; message A {}'),
        ("PROTOBUF", 'syntax = "proto3"; message A { string a = ; }'),
        ("PROTOBUF", 'syntax = "proto3"; message A { Missing a = 1; }'),
        ("PROTOBUF", 'syntax = "proto3"; message A { string a = 1; string b = 1; }'),
        ("PROTOBUF", 'syntax = "proto3"; message A { string a = 0; }'),
        ("PROTOBUF", 'syntax = "proto3"; import "missing.proto"; message A { Missing a = 1; }'),
        ("PROTOBUF", "message A {" * 2000 + "}" * 2000),
    ],
)
def test_what_is_no_schema_is_rejected_with_a_reason(kind: str, text: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse(kind, text, {}).check()
    assert str(caught.value)
