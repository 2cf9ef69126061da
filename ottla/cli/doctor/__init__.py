"""What `ottla doctor` looks at, and what it can find."""
