"""The processes of `ottla start --processes N`: a machine's controller and its N brokers, a process each, under one supervisor."""
