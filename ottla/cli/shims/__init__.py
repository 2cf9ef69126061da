"""Look-alikes of Kafka's command-line tools for scripts and health checks: same flags, same text, same exit codes.

Not a second command line: people are better served by `ottla`. A tool rejects options that it does not know.
"""
