"""The relay's schema, step by step."""
