"""Topics that are tables: what the broker that leads their partitions has done, beside it, at each interval. docs/dev/TABLES.md."""
