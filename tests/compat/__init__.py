"""Other clients' own test suites, run against a node: `make compat`. The allow-lists name what must pass; they only grow."""
