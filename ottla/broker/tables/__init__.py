"""Topics that are tables: the work that is done for them at each interval, beside the broker that leads their partitions. See
docs/dev/TABLES.md.
"""
