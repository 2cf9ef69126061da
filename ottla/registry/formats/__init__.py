"""Avro, JSON Schema and Protobuf: their parsing, their canonical texts, and their rules of compatibility."""
