"""The quota's database, for those who look after it."""

from typing import Final

from hopline_store.records import Records

from hopline_quota.settings import DATABASE_FILE

RECORDS: Final = Records(
    name="quota",
    file=DATABASE_FILE,
    migrations="hopline_quota.migrations",
)
