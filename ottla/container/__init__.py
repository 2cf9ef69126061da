"""The entry point of the container image. It understands the environment variables of other Kafka images."""
