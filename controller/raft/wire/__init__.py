"""The quorum on the wire: core messages as requests and responses, in both directions."""
