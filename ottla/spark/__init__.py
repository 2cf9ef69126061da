"""The Kafka connector `format("ottla")` for PySpark without a jar, on the Python Data Source API. docs/SPARK.md is its manual."""

from ottla.spark.source import OttlaDataSource, register

__all__ = ["OttlaDataSource", "register"]
