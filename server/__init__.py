"""What every node is made of whatever its role: listeners, dispatch, peer channels, config, metrics, clock. No topics, no groups."""
