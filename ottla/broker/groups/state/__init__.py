"""What the log says of groups: the state of each kind, the records that make it, and values derived from it."""
