"""Three real processes, stock clients, and the accidents of ottla.testing."""
