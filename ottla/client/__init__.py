"""A small Kafka client for our own tools: metadata, administration, an idempotent producer, consumers with and without a group.

It opens no transactions.
"""
