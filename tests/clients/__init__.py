"""Programs as users write them, with stock clients, against a running node."""
