"""Fetch: its sessions, the reader of their partitions, the delayed fetch, and the two encodings of its responses."""
