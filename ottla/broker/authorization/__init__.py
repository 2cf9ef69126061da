"""Authorization of requests: the rows of broker/routes.py say what an API requires, or its handler does by the functions of checks.py."""
