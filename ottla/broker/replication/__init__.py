"""The partitions of this node: their roles, watermarks, appends, reads and waiting requests."""
