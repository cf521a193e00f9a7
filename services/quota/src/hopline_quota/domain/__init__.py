"""Rules and values of admission. Standard library only; time and ids are arguments."""
