"""The quorum's replicated metadata log: KRaft as in Apache Kafka. The meaning of the records is defined in `controller.metadata`."""
