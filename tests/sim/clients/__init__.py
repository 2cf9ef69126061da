"""The clients of the simulated cluster: small ones that retry by Kafka's rules."""
