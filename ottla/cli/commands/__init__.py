"""One module per command; `ottla.main` imports them lazily."""
