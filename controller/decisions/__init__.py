"""Decisions: from the image and a request to records and a response. Nothing here writes, waits or reads a clock."""
