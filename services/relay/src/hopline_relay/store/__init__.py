"""The relay's tables and the statements on them."""
