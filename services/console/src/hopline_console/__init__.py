"""The console: pages for people over the same RPCs."""
