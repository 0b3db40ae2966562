"""The tokens that a context may take, and how its parts may divide them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memstore.errors import InvalidInput
from memstore.windows import window_of

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

    @classmethod
    def for_model(
        cls,
        model: str,
        *,
        answer: int = 8_192,
        share: float = 0.25,
        windows: Mapping[str, int] | None = None,
        state_share: float = 0.4,
        tail_share: float = 0.35,
    ) -> Budget:
        """Take a share of what a model's context window holds beside its answer.

        `answer` tokens are kept free for it, or half of the window where that is less; `share`
        of the rest is the memory's, since instructions, tools and the turns to come need room
        too. `windows` maps starts of models' names to tokens, before the table that ships.

        Raises `ConfigurationError` for a model of unknown window, `InvalidInput`.
        """
        if not 0 < share <= 1:
            raise InvalidInput("must be above 0, up to 1", path="share")
        if answer < 0:
            raise InvalidInput("must be at least 0", path="answer")
        window = window_of(model, windows)
        return cls(int((window - min(answer, window // 2)) * share), state_share, tail_share)

    @property
    def state(self) -> int:
        """The tokens that the state may claim."""
        return int(self.total * self.state_share)

    @property
    def tail(self) -> int:
        """The tokens that the log's tail may claim."""
        return int(self.total * self.tail_share)
