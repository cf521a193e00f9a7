"""Translates between the contract and the relay: no rules, no SQL."""
