"""The common base of every node, independent of its role: listeners, dispatch, peer channels, config, metrics, clock.

It knows nothing of topics and groups.
"""
