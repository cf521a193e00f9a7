"""From the contract's messages to the features and back; no rules, no SQL."""
