"""`make bench ARGS=tables`: what topics that are tables cost (docs/TABLES.md), each row with its goal."""
