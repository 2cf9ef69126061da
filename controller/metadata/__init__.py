"""The metadata image, the deltas that change it, and how log and snapshots become both."""
