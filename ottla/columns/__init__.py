"""Record batches as columns of Arrow, for Spark and for tables. It imports neither of them. docs/dev/TABLES.md describes it."""
