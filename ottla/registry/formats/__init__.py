"""Avro, JSON Schema and Protobuf: parsing, the canonical text, and which evolution is compatible."""
