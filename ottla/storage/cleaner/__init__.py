"""Compaction: what is cleaned, and how."""
