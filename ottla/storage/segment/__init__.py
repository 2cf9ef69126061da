"""One segment of a log: its file, its mapping, its indexes."""
