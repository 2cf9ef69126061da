"""The check of `ottla adopt`: it looks at the log directories of a stopped node, of Apache Kafka or of Ottla, before this node goes on with them.

Nothing is converted, because the formats are the same. The modules say who the directories belong to, what their metadata, logs
and coordinators have, what a start would change, and why these directories are not adopted.
"""
