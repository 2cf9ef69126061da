"""A PySpark data pipeline on Spark's stock Kafka source: bronze, silver, gold, and their checks.

It is a Kafka client like any other: it imports nothing of this project's servers and runs against Apache Kafka just as well.
"""
