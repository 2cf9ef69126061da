"""What `ottla start --processes N` runs: a machine's controller and its N brokers, a process each, under one supervisor."""
