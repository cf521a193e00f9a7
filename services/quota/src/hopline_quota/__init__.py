"""The quota service: admission, depth, run slots, usage."""
