"""The load generator of `ottla perf` and of Kafka's perf tools.

It reports the time of each record to its caller, which counts and prints.
"""
