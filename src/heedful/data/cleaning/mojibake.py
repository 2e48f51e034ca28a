"""Find text that was decoded with the wrong encoding, such as "Ã¤" for "ä", with ftfy."""

import re
from collections.abc import Callable

from heedful.data.cleaning.pair import Pair
from heedful.data.cleaning.survey import Survey

# One character becomes two or more beyond ASCII, unless some are lost. Other text is skipped quickly.
_LIKELY = re.compile("[^\x00-\x7f]{2}|[ÂÃâ]")


def mojibake(survey: Survey) -> Callable[[Pair], bool] | None:
    """A side was decoded with the wrong encoding, and can be repaired: "FÃ¤hre" for "Fähre".

    Source: Bifixer and ftfy, hardrules no_bad_encoding; here ftfy.
    """
    del survey
    try:
        from ftfy import fix_encoding
        from ftfy.badness import is_bad
    except ImportError:
        return None

    def check(pair: Pair) -> bool:
        texts = (sentence.text for sentence in pair.sentences if not sentence.text.isascii())
        return any(_LIKELY.search(t) and is_bad(t) and fix_encoding(t) != t for t in texts)

    return check
