"""Producer states of a partition, and their snapshots."""
