"""Record batches as columns of Arrow, for Spark and for tables; without either of them. docs/dev/TABLES.md."""
