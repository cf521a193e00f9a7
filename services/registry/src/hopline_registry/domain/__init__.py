"""The registry's values and rules; standard library only."""
