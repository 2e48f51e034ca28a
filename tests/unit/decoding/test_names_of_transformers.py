"""Options by the names of transformers' `generate` are answered with the right ones."""

import pytest

from heedful import SearchOptions
from heedful.errors import OptionError
from heedful.settings.words import SEARCH_WORDS


@pytest.mark.parametrize(("theirs", "right"), SEARCH_WORDS.items())
def test_a_name_of_transformers_is_answered_with_the_right_one(theirs: str, right: str) -> None:
    with pytest.raises(OptionError, match=f"unknown option '{theirs}'; did you mean '{right}'"):
        SearchOptions(**{theirs: 4})  # type: ignore[arg-type]
