"""What the turns of a workspace have cost, as the memory store keeps it."""

from __future__ import annotations


class Credit:
    """The sum of all prices, and the price of each turn that is queued or runs."""

    __slots__ = ("charged", "prices")

    def __init__(self) -> None:
        self.charged = 0
        self.prices: dict[str, int] = {}

    def charge(self, turn_id: str, price: int) -> None:
        """Charge a turn, once."""
        if turn_id not in self.prices:
            self.prices[turn_id] = price
            self.charged += price

    def plant(self, turn_id: str, price: int) -> None:
        """Know the price of a turn that stands in the sum already."""
        self.prices[turn_id] = price

    def give_back(self, turn_id: str) -> None:
        """Give a turn's price back; one that was given back, or that cost nothing, is left alone."""
        self.charged -= self.prices.pop(turn_id, 0)

    def keep(self, turn_id: str) -> None:
        """Forget a turn that has run: what it was charged stays charged."""
        self.prices.pop(turn_id, None)
