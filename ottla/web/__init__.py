"""HTTP servers, for the console and the registry: their connections, and who may ask."""
