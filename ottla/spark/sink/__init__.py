"""The sink: it writes rows to topics, at least once or exactly once. docs/SPARK.md has the protocol of the latter, step by
step.
"""
