"""The state of a working agent, for those who bring no model of their own."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PositiveInt

from memstore.annotations import Cue, Fresh
from memstore.schema import StateSchema


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ConfirmedFact(_Part):
    """Something the user confirmed, when, and at which positions of the log it was said."""

    statement: str
    confirmed_at: AwareDatetime
    positions: list[PositiveInt] = Field(default_factory=list)
    source: str | None = None


class ActiveTask(_Part):
    """What the agent is working on, how it stands, and what it did last."""

    description: Annotated[str, Cue(rank=0)]
    status: str = "in progress"
    last_action: Annotated[str | None, Cue(rank=1)] = None


class Issue(_Part):
    """A question or problem that is still open."""

    description: Annotated[str, Cue(rank=2)]
    opened_at: AwareDatetime | None = None
    positions: list[PositiveInt] = Field(default_factory=list)


class AgentState(_Part):
    """What an agent decides from.

    Preferences are asked about again after 90 days, facts 180 days after they were confirmed, an
    active task after 30 days without a change, and an open issue 60 days after it was opened.
    """

    user_preferences: Annotated[
        dict[str, Any],
        Fresh(
            timedelta(days=90),
            question="On {date} you gave your preference for {name} as {value}; is that still so?",
        ),
    ] = Field(default_factory=dict)
    confirmed_facts: Annotated[
        list[ConfirmedFact],
        Fresh(
            timedelta(days=180),
            question="You said on {date} that {statement}; is that still so?",
            since="confirmed_at",
        ),
    ] = Field(default_factory=list)
    active_task: Annotated[
        ActiveTask | None,
        Fresh(
            timedelta(days=30),
            question="On {date} we were working on this: {description}; is that still the task?",
        ),
    ] = None
    unresolved_issues: Annotated[
        list[Issue],
        Fresh(
            timedelta(days=60),
            question="On {date} this was still open: {description}; is it still unresolved?",
            since="opened_at",
        ),
    ] = Field(default_factory=list)


DEFAULT_SCHEMA: StateSchema[AgentState] = StateSchema("agent", 1, AgentState)
