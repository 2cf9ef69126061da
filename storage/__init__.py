"""The files of one node's logs: Apache Kafka's own formats, byte for byte. Knows nothing of sockets, brokers or asyncio."""
