"""Look-alikes of Kafka's command-line tools for scripts and health checks: same flags, same text, same exit codes.

Not a second command line: people are better served by `ottla`. What a tool here does not know it refuses.
"""
