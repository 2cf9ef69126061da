"""What a client may do, asked before the handlers are: rules.py says it per API, guard.py puts it in front of a handler."""
