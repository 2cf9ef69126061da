"""A schema registry with Confluent's REST API and records (`ottla registry`), and a client of such registries."""
