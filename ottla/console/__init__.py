"""The web page of a Kafka cluster, `ottla console`: a client of the wire protocol and of brokers' admin listeners.

It keeps no state but a bounded window of samples. Each page asks the cluster when it is looked at, within a time limit.
"""
