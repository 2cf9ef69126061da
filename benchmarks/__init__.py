"""Ottla and Apache Kafka in one run: same client, same load, in turns; the server's own CPU is read from its process."""
