"""Credits as whole numbers of millionths: sums of them are exact, whatever their order."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

_DECIMALS: Final = 6
UNIT: Final = 10**_DECIMALS
# What a workspace may pay in altogether: far from where 64 bits end.
MOST: Final = 10**12 * UNIT


def read(text: str) -> int:
    """Read a decimal number such as `12.5`, of digits and at most six decimals."""
    whole, _, fraction = text.partition(".")
    return int(whole) * UNIT + int(fraction.ljust(_DECIMALS, "0"))


def write(amount: int) -> str:
    """Write an amount as a decimal number without idle zeros: `12.5`, `-3`, `0`."""
    whole, fraction = divmod(abs(amount), UNIT)
    decimals = f"{fraction:0{_DECIMALS}}".rstrip("0")
    sign = "-" if amount < 0 else ""
    return f"{sign}{whole}.{decimals}" if decimals else f"{sign}{whole}"


def write_price(price: Decimal | None) -> str:
    """Write the price of a turn in the same way; `off` where there is none."""
    return "off" if price is None else write(int(price.scaleb(_DECIMALS)))
