"""Share groups (KIP-932): the coordinator assigns, members have what they are assigned at once, several may have one partition."""
