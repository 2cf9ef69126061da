"""Groups of the KIP-848 kinds as state, and the computations that need no shard: members, assignments, subscriptions."""
