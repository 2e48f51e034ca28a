"""The list of all constructions, by name."""

from __future__ import annotations

from collections.abc import Callable

from phrasebook.descriptions import DESCRIPTIONS
from phrasebook.locations import LOCATIONS
from phrasebook.occasions import OCCASIONS
from phrasebook.questions import QUESTIONS
from phrasebook.relatives import RELATIVES
from phrasebook.scene import Scene
from phrasebook.statements import STATEMENTS
from phrasebook.subordinates import SUBORDINATES

Construction = Callable[[Scene], tuple[str, str]]

CONSTRUCTIONS: tuple[Construction, ...] = (
    *STATEMENTS,
    *DESCRIPTIONS,
    *LOCATIONS,
    *QUESTIONS,
    *SUBORDINATES,
    *RELATIVES,
    *OCCASIONS,
)


def construction_names() -> tuple[str, ...]:
    """The names of the grammar's constructions, in the order in which they take turns."""
    return tuple(construction.__name__ for construction in CONSTRUCTIONS)
