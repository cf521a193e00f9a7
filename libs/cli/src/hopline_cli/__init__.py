"""The hopline command."""
