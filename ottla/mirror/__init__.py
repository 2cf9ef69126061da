"""The mirror of `ottla mirror`: topics, records, offsets of groups and ACLs of one cluster in another, as a client of both (docs/MIRROR.md)."""
