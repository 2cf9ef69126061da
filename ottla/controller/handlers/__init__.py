"""Handlers of the controller's APIs: one file per noun; `controller/routes.py` has the table."""
