"""Many brokers in three racks on one machine: what they do when a rack is cut off, all are restarted, and one is lost."""
