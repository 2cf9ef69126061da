"""Regular expressions in RE2's syntax, matched in time linear in the text, for nodes without the package google-re2."""
