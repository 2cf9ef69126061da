"""The web page of a Kafka cluster, `ottla console`: a client of the wire protocol and of brokers' admin listeners.

Its only state is a bounded window of samples. A page asks the cluster when a user opens it, within a time limit.
"""
