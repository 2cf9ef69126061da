"""Produce: admission, append, the delayed response, and the fast path of requests that repeat the one before."""
