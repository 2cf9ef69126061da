"""A PySpark data pipeline on the stock Kafka source: bronze, silver, gold, and what checks them.

It is a Kafka client like any other: it imports nothing of this project's servers and runs against Apache Kafka just as well.
"""
