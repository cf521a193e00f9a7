"""Run by Alembic."""

from hopline_store.migrations import run_env

from hopline_quota.store.schema import metadata

run_env(metadata)
