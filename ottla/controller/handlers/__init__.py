"""Handlers of the controller's APIs: one file per API; `controller/routes.py` has the table."""
