"""The share coordinator: states of share partitions, kept in `__share_group_state` (KIP-932)."""
