"""The runtime of coordinator shards. The state of a shard is what the replay of one partition of an internal topic gives."""
