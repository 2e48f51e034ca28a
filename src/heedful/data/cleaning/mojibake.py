"""The one place that knows ftfy: text that was decoded by the wrong table, as "Ã¤" for "ä"."""

import re
from collections.abc import Callable

from heedful.data.cleaning.pair import Pair
from heedful.data.cleaning.survey import Survey

# What one character becomes: two beyond ASCII or more, unless some are lost. Text without is soon done.
_LIKELY = re.compile("[^\x00-\x7f]{2}|[ÂÃâ]")


def mojibake(survey: Survey) -> Callable[[Pair], bool] | None:
    """A side was decoded by the wrong table, and can be mended: "FÃ¤hre" for "Fähre".

    Source: Bifixer and ftfy, hardrules no_bad_encoding; here ftfy.
    """
    del survey
    try:
        from ftfy import fix_encoding
        from ftfy.badness import is_bad
    except ImportError:
        return None

    def check(pair: Pair) -> bool:
        texts = (side.text for side in pair.sides if not side.text.isascii())
        return any(_LIKELY.search(t) and is_bad(t) and fix_encoding(t) != t for t in texts)

    return check
