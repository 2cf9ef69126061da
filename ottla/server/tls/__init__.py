"""TLS from Kafka's properties: key stores and trust stores, OpenSSL contexts, and their replacement while a node runs."""
