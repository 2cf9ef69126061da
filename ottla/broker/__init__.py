"""The clients' side of a node: data, groups, metadata answers. Hard state lives only in logs."""
