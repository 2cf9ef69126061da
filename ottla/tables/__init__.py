"""Topics as tables: committed records become rows of Iceberg, Delta or Parquet, each exactly once (docs/dev/TABLES.md)."""
