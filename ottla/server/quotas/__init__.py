"""Client quotas (KIP-13, KIP-55, KIP-124, KIP-599, KIP-612): lookup, usage and throttle times.

Everything here is pure: the time is an argument, and a throttle time in milliseconds is the result. Connections are muted in server/network.
"""
