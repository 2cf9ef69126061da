"""One module per command; the command `ottla` (ottla/__main__.py) imports them lazily."""
