"""`hopline supervise`: starts an agent's worker when there is work for it, and ends it when there is none."""
