"""Clients of the simulated cluster: small, and by Kafka's rules of retrying."""
