"""What the groups of Kafka 4 have in common, whatever protocol their members speak: assignments and the server's assignors."""
