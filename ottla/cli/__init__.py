"""The command line: commands of `ottla`, stand-ins for the tools of Kafka, and the small client that both use."""
