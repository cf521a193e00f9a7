"""SQL access for the services: one writer thread a database, readers, migrations."""

from hopline_store.database import Database, open_database, open_engine, private_file
from hopline_store.migrations import migrate, run_env
from hopline_store.reader import Reader
from hopline_store.writer import Writer, after_commit

__all__ = [
    "Database",
    "Reader",
    "Writer",
    "after_commit",
    "migrate",
    "open_database",
    "open_engine",
    "private_file",
    "run_env",
]
