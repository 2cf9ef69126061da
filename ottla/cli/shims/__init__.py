"""Look-alikes of Kafka's command-line tools for scripts and health checks: same flags, same text, same exit codes.

They are no second command line for users, who should take `ottla`. A tool rejects options that it does not know.
"""
