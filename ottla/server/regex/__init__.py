"""Regular expressions of RE2's syntax in time linear in the text, for nodes without the package google-re2."""
