"""Looking for an accepted answer, word for word, where no evidence is marked."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable


def folded(text: str) -> str:
    """Bring to NFKC, without case, with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def pattern(answers: Iterable[str]) -> re.Pattern[str] | None:
    """Return what finds any of the answers in a folded text; None where there is none.

    An answer in ASCII must stand as words of its own: India is not in Indiana.
    """
    parts = []
    for answer in map(folded, answers):
        if answer:
            before = r"(?<![a-z0-9])" if answer[0].isascii() and answer[0].isalnum() else ""
            after = r"(?![a-z0-9])" if answer[-1].isascii() and answer[-1].isalnum() else ""
            parts.append(before + re.escape(answer) + after)
    return re.compile("|".join(parts)) if parts else None
