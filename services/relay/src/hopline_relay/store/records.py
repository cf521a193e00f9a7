"""The relay's database, for those who look after it."""

from typing import Final

from hopline_store.records import Records

from hopline_relay.settings import DATABASE_FILE
from hopline_relay.store.checking import contradictions

RECORDS: Final = Records(
    name="relay",
    file=DATABASE_FILE,
    migrations="hopline_relay.migrations",
    # The index behind the search, which the relay puts in order by itself, and what relays tell each other.
    rebuilt=("exchanges", "exchange_marks", "message_words", "open_tunnels", "secrets"),
    check=contradictions,
)
