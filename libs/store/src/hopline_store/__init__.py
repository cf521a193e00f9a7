"""SQL access for the services: one writer thread a database, readers, migrations."""
