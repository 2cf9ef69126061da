"""The load generator of `ottla perf` and of Kafka's perf tools. It reports what each record took to its caller, which counts and prints."""
