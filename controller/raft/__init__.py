"""The quorum's replicated metadata log: KRaft as Apache Kafka speaks it. Knows nothing of what the records mean."""
