"""The files of one node's logs: Apache Kafka's own formats, byte for byte. This package does not use sockets, brokers or asyncio."""
