"""Bytes to objects and back: messages, record batches, error codes, feature levels. No I/O, no clock."""
