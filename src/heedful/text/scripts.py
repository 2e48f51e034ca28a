"""Scripts: which characters a text is written in, and whether spaces separate its words.

Unicode's rules for line breaking (UAX 14) name the scripts without spaces: ideographs and kana (the
classes ID and CJ), of South-East Asia where only a dictionary finds the words (SA), and Brahmic ones where
lines are broken between syllables (AK, AP, AS, VI and VF, such as Javanese and Balinese). Tibetan separates
syllables by marks.
"""

import re
from collections.abc import Iterable
from typing import Literal

Script = Literal["han", "kana", "hangul", "other-unspaced", "spaced"]

# The insides of character classes of regular expressions.
_HAN = (
    "\u2e80-\u2fdf\u3005-\u3007\u3100-\u312f\u31a0-\u31bf\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_KANA = "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001aff0-\U0001b16f"
# Thai, Lao, Tibetan, Myanmar; Khmer; Tai Le, New Tai Lue, Khmer symbols; Tai Tham; Balinese; Batak; Yi;
# Javanese, Myanmar, Cham, Tai Viet; Brahmi; Grantha, Tulu-Tigalari; Myanmar, Ahom; Dives Akuru;
# Makasar, Kawi; Gurung Khema; Tangut, Khitan; Nushu.
_OTHER_UNSPACED = (
    "\u0e00-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u1b00-\u1b7f\u1bc0-\u1bff\ua000-\ua4cf"
    "\ua980-\uaadf\U00011000-\U0001107f\U00011300-\U000113ff\U000116d0-\U0001174f\U00011900-\U0001195f"
    "\U00011ee0-\U00011f5f\U00016100-\U0001613f\U00017000-\U000191ff\U0001b170-\U0001b2ff"
)
CJK = _HAN + _KANA
UNSPACED = CJK + _OTHER_UNSPACED
_HANGUL = "\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff\uffa0-\uffdc"
_RUNS: dict[Script, re.Pattern[str]] = {
    "han": re.compile(f"[{_HAN}]+"),
    "kana": re.compile(f"[{_KANA}]+"),
    "hangul": re.compile(f"[{_HANGUL}]+"),
    "other-unspaced": re.compile(f"[{_OTHER_UNSPACED}]+"),
    "spaced": re.compile(rf"[^\W\d_{UNSPACED}{_HANGUL}]+"),
}


def shares_of_scripts(lines: Iterable[str]) -> dict[Script, float]:
    """Return the share of each kind of script in the letters of a text, 0 to 1; all are 0 without letters.

    >>> shares_of_scripts(["ab 漢字 12"])["han"]
    0.5
    """
    text = "\n".join(lines)
    counts = {script: sum(map(len, runs.findall(text))) for script, runs in _RUNS.items()}
    total = max(1, sum(counts.values()))
    return {script: count / total for script, count in counts.items()}
