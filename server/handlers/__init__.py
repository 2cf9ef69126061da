"""APIs that brokers and controllers answer alike."""
