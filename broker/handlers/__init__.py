"""One file per API; `routes.py` is the table."""
