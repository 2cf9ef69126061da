"""The checks of `ottla doctor`, and its findings."""
