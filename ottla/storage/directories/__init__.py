"""The logs of a node in its log directories."""
