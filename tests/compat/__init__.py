"""Other clients' own test suites, run against a node: `make compat`. The allow-lists name the tests that must pass; the lists
only grow.
"""
