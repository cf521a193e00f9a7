"""The history of the registry's tables."""
