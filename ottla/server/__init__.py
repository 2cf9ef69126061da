"""The common base of every node, independent of its role: listeners, dispatch, peer channels, config, metrics, clock. No topics, no groups."""
