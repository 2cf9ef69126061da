"""Handlers of APIs that are the same on brokers and controllers."""
