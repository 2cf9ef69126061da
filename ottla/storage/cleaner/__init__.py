"""Compaction: the choice of logs, and the cleaning of their segments."""
