"""Share groups (KIP-932) in a broker: the state of share partitions, and what their leaders do with it."""
