"""The handlers of APIs, a file for each noun; the table is `broker/routes.py`."""
