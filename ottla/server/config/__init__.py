"""Every configuration name, its type and rules; reading server.properties; which of several values wins."""
