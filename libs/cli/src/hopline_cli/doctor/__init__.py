"""`hopline doctor`: looks at everything that goes wrong, and says what to do about it."""
