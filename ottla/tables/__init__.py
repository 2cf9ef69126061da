"""Topics as tables: committed records as rows of Iceberg, Delta or Parquet, each exactly once. docs/dev/TABLES.md."""
