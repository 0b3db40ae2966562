"""Context windows of some models by the start of their names; the longest start that fits counts.

A small table of November 2026, for `Budget.for_model`: give `windows` for what is not in it, or
has changed.
"""

from __future__ import annotations

from collections.abc import Mapping

from memstore.errors import ConfigurationError

#: Tokens, by the start of the model's name.
WINDOWS: Mapping[str, int] = {
    "claude-3": 200_000,
    "claude-fable-5": 1_000_000,
    "claude-haiku-4": 200_000,
    "claude-haiku-5-5": 1_000_000,
    "claude-mythos-5": 1_000_000,
    "claude-opus-4": 200_000,
    "claude-opus-4-6": 1_000_000,
    "claude-opus-4-7": 1_000_000,
    "claude-opus-4-8": 1_000_000,
    "claude-opus-5": 1_000_000,
    "claude-sonnet-4": 200_000,
    "claude-sonnet-4-6": 1_000_000,
    "claude-sonnet-5": 1_000_000,
    "deepseek-chat": 64_000,
    "deepseek-v3": 128_000,
    "deepseek-v4": 1_000_000,
    "gemini-1.5": 1_000_000,
    "gemini-2": 1_000_000,
    "gemini-3": 1_000_000,
    "gemini-4": 1_000_000,
    "gemma-4": 262_144,
    "gpt-3.5-turbo": 16_385,
    "gpt-4": 8_192,
    "gpt-4-turbo": 128_000,
    "gpt-4.1": 1_000_000,
    "gpt-4o": 128_000,
    "gpt-5": 400_000,
    "gpt-5.4": 1_050_000,
    "gpt-5.4-mini": 400_000,
    "gpt-5.4-nano": 400_000,
    "gpt-5.5": 1_000_000,
    "gpt-5.6": 1_050_000,
    "gpt-6": 1_050_000,
    "gpt-oss": 131_072,
    "grok-3": 131_072,
    "grok-4": 256_000,
    "grok-4-fast": 2_000_000,
    "grok-4.5": 500_000,
    "grok-4.6": 500_000,
    "grok-4.7": 500_000,
    "mistral-large": 262_144,
    "mistral-medium": 262_144,
    "mistral-small": 262_144,
    "o1": 200_000,
    "o1-mini": 128_000,
    "o3": 200_000,
    "o4-mini": 200_000,
}


def window_of(model: str, windows: Mapping[str, int] | None = None) -> int:
    """Return a model's context window in tokens; `windows` goes before the table.

    A provider's prefix (``anthropic/claude-opus-5``) is left out. Raises `ConfigurationError`
    for a model that neither names.
    """
    name = model.rsplit("/", 1)[-1].casefold()
    for table in (windows or {}, WINDOWS):
        fitting = [start for start in table if name.startswith(start.casefold())]
        if fitting:
            return table[max(fitting, key=len)]
    raise ConfigurationError(
        f"the context window of {model!r} is not known: pass windows={{{model!r}: tokens}}"
    )
