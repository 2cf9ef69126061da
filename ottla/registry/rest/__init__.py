"""The REST API: paths, parameters and answers as Confluent's registry has them."""
