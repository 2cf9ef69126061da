"""A small Kafka client for our own tools: metadata, administration, producing, consuming. No groups, no transactions."""
