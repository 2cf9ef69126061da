"""Nodes of Apache Kafka 4.3.1 and of Ottla in one cluster: one quorum, one ISR, one log directory handed from one to the other."""
