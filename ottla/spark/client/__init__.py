"""A blocking Kafka client for Spark's processes, which have no event loop: requests, fetches of ranges, transactions."""
