"""Client quotas (KIP-13, KIP-55, KIP-124, KIP-599, KIP-612): which quota counts for whom, what was used, and how long to wait.

Everything here is pure: the time is given in, a number of milliseconds comes out. Connections are muted in server/network.
"""
