"""The tokens that a context may take, and how its parts may divide them."""

from __future__ import annotations

from dataclasses import dataclass

from memstore.errors import InvalidInput

__all__ = ["Budget"]


@dataclass(frozen=True, slots=True)
class Budget:
    """Limit a rendered context to `total` tokens.

    `state_share` and `tail_share` are the largest fractions of it that the state and the log's
    tail may claim while other parts want room; what a part does not use flows to the others.
    Retrieved entries have the rest, so the two may sum to 1 at most. Raises `InvalidInput`.
    """

    total: int
    state_share: float = 0.4
    tail_share: float = 0.35

    def __post_init__(self) -> None:
        if not isinstance(self.total, int) or isinstance(self.total, bool) or self.total < 0:
            raise InvalidInput("must be a whole number of tokens, at least 0", path="total")
        for name in ("state_share", "tail_share"):
            share = getattr(self, name)
            if isinstance(share, bool) or not isinstance(share, (int, float)):
                raise InvalidInput("must be a number from 0 to 1", path=name)
            if not 0 <= share <= 1:  # also refuses NaN
                raise InvalidInput("must be from 0 to 1", path=name)
        if self.state_share + self.tail_share > 1 + 1e-9:
            raise InvalidInput("with state_share it must not exceed 1", path="tail_share")

    @property
    def state(self) -> int:
        """The tokens that the state may claim."""
        return int(self.total * self.state_share)

    @property
    def tail(self) -> int:
        """The tokens that the log's tail may claim."""
        return int(self.total * self.tail_share)
