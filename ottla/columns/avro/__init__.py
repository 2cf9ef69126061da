"""Columns of Avro's values: schemas, types and decoding. docs/dev/TABLES.md describes them."""
