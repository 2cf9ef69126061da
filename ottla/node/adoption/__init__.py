"""The check of `ottla adopt`: it looks at the log directories of a stopped node, of Apache Kafka or of Ottla, before this node goes on with them.

Nothing is converted, because the formats are the same. The modules find the owner of the directories, the contents of their
metadata, logs and coordinators, the changes that a start would make, and the reasons against an adoption.
"""
