"""The metadata image, the deltas that change it, and the loader that makes both from log and snapshots."""
