"""One HTTP port, bounded against clients that dawdle: what the gateway and the console listen with."""
