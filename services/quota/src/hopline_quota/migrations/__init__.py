"""The history of the quota service's tables."""
