"""The services of a plugin's endpoint."""
