"""The list of all constructions, by name."""

from __future__ import annotations

from collections.abc import Callable

from heedful.data.phrasebook.descriptions import DESCRIPTIONS
from heedful.data.phrasebook.locations import LOCATIONS
from heedful.data.phrasebook.occasions import OCCASIONS
from heedful.data.phrasebook.questions import QUESTIONS
from heedful.data.phrasebook.relatives import RELATIVES
from heedful.data.phrasebook.scene import Scene
from heedful.data.phrasebook.statements import STATEMENTS
from heedful.data.phrasebook.subordinates import SUBORDINATES

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
