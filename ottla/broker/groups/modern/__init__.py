"""Groups of the KIP-848 kinds as state, and what is computed of it without the shard: members, assignments, subscriptions."""
