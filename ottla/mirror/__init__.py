"""The mirror of `ottla mirror`: it copies topics, records, offsets of groups and ACLs of one cluster into another, as a client
of both (docs/MIRROR.md).
"""
