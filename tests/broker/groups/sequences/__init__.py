"""Random sequences of requests of groups, played against Apache Kafka and against Ottla."""
