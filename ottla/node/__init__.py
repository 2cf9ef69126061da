"""A node: the parts of one broker, controller or both, put together, and the process that runs them."""
