"""Decisions: from the image and a request to records and a response. Decisions do not write, wait or read a clock."""
