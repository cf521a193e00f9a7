"""The live view of who exists and the rules of who may reach whom."""
