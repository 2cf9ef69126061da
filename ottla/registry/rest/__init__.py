"""The REST API: paths, parameters and responses as in Confluent's registry."""
