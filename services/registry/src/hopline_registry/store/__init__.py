"""The registry's SQL: plain functions over a connection, each one statement or little more.

Atomicity: whatever one call of `Core.write` does, its changes for the feed included, is one transaction.
Order: changes get gapless numbers from the row in `feed`, which the transaction holds until it commits.
"""
