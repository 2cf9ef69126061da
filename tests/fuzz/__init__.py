"""Coverage-guided fuzzing of all code that reads bytes of others: the wire, the files, the records of internal topics."""
