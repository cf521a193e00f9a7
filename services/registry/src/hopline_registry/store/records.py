"""The registry's database, for those who look after it."""

from typing import Final

from hopline_store.records import Records

from hopline_registry.settings import DATABASE_FILE

RECORDS: Final = Records(
    name="registry",
    file=DATABASE_FILE,
    migrations="hopline_registry.migrations",
    seeded=("feed",),
    # What page tokens are sealed with: made anew.
    rebuilt=("secrets",),
)
