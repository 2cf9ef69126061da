"""HTTP servers for the console and the registry: their connections, and the requests that they accept."""
