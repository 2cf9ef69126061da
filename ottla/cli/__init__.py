"""The command line: the commands of `ottla`, and stand-ins for the tools of Kafka."""
