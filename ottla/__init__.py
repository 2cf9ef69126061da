"""Ottla: a Kafka-protocol cluster in Python."""
