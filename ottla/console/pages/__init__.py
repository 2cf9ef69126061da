"""The pages of the console, one module for each part of the cluster."""
