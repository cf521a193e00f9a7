"""Between the contract's messages and the domain's values; no rules, no state."""
