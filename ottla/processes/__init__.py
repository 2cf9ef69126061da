"""The processes of `ottla start --processes N`: a machine's controller and its N brokers.

Each is a process, under one supervisor.
"""
