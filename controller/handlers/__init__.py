"""What a controller's listeners answer: one file per API, and the table of them in routes.py."""
