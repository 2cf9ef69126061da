"""The state of groups of each kind, as the log has it, the records that make it, and values derived from it."""
