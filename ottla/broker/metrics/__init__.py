"""Metrics of a broker, one file per subject. They are counted at a scrape or once per batch, never per record."""
