"""Conversion of core messages to requests and responses of the wire, and back."""
