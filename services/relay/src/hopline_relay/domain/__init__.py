"""Rules of the relay; standard library only."""
