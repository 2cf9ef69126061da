"""Faults on real processes, with stock clients as the load and a count of every record as the judge."""
