"""One file per API, named as the API; each holds the request, the response and their structs for all versions."""
