"""The runtime that hosts coordinator shards: state that is a partition of an internal topic, replayed."""
