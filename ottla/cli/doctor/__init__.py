"""The checks of `ottla doctor`, and the findings that they can have."""
