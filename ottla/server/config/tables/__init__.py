"""The rows of the tables, by subject."""
