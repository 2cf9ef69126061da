"""Principals of connections, and authorization."""
