"""The one base of every Hopline service: serving, interceptors, errors, channels, principals, telemetry."""
