"""One file per API; the table is `broker/routes.py`."""
