"""Declarations of the records in internal topics and control batches and of the small files of logs, with their framing."""
