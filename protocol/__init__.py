"""Bytes to objects and back: messages, record batches, framing, error codes, feature levels. No I/O, no clock."""
