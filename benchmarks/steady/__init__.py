"""`make bench ARGS=steady`: what messages at a steady rate wait for while something else happens to their cluster, beside Apache Kafka."""
