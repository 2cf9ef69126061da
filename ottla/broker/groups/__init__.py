"""The group coordinator: membership and committed offsets, kept in `__consumer_offsets`."""
