"""Authorization before handlers: broker/routes.py lists per API what is required, guard.py checks it in front of the handler."""
