"""The Kafka connector `format("ottla")` for PySpark, on the Python Data Source API.

It needs no jar. docs/SPARK.md is its manual.
"""

from ottla.spark.source import OttlaDataSource, register

__all__ = ["OttlaDataSource", "register"]
