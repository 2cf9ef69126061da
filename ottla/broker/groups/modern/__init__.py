"""Shared by the group types of Kafka 4 (consumer, share, streams): assignments and the server's assignors."""
