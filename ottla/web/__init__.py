"""What the HTTP servers of the console and of the registry share: their connections, and who may ask."""
