"""Modules without a test file of their own, and the test file that covers each."""
COVERED_BY: dict[str, str] = {}
