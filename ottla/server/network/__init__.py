"""Sockets: listeners, connections, dispatch of requests, channels to peers."""
