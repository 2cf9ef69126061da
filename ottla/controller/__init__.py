"""The quorum and the metadata it owns: Raft, the records and their image, the decisions, the controller's handlers."""
