"""Ottla: a Kafka-protocol cluster in Python."""

#: The only place of the version: pyproject.toml reads it here.
__version__ = "0.1.0"
