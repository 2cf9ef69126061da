"""Values of Avro as columns: schemas, their types, and their values. docs/dev/TABLES.md."""
