"""Delayed operations (Kafka's purgatory): Produces that wait for an offset, DeleteRecords that wait for replicas, and their wake-ups."""
