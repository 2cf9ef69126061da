"""Tiered storage (KIP-405): old segments of the partitions of this broker lie in a store. docs/dev/TIERS.md."""
