"""`hopline attach`: runs a command for each turn of an agent, and hands it nothing but its own session."""
