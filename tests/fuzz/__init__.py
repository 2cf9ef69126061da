"""Coverage-guided fuzzing of everything that reads bytes of others: the wire, the files, the records of internal topics."""
