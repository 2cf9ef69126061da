"""The log of one replica: appends, reads, rolls, truncation, flushes, retention."""
