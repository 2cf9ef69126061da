"""Authorization before handlers: rules.py lists per API what is required, guard.py checks it in front of the handler."""
