"""The clusters of this machine: their directories, nodes, certificates and snapshots, for the command line and for tests."""
