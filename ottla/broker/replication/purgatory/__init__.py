"""Delayed operations (Kafka's purgatory): Produce that waits for an offset, DeleteRecords that waits for replicas, and waking."""
