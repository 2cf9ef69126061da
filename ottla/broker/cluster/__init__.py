"""The broker as a member of its cluster: registration, heartbeats, and requests to the controller and to other brokers."""
