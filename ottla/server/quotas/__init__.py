"""Quotas of clients and of connections (KIP-13, KIP-55, KIP-124, KIP-599, KIP-612). Connections are muted in server/network."""
