"""Run by Alembic."""

from hopline_store.migrations import run_env

from hopline_relay.store.schema import metadata

run_env(metadata)
