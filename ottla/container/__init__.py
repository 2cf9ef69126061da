"""The entry point of the container image: what other Kafka images understand as environment, understood here too."""
