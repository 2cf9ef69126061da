"""TLS from Kafka's properties: key stores and trust stores, contexts of OpenSSL, and what is replaced while a node runs."""
