"""Metrics of clients (KIP-714): who pushes which, whether a request is in time, and the values that were pushed."""
