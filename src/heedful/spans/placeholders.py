"""Placeholders: parts of a text that no translation may change, such as {name}, %s and addresses."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from heedful.spans.keep import kept
from heedful.spans.marks import MARKS
from heedful.spans.reading import counted

Range = tuple[int, int]  # the first character, and the one after the last

_LETTER = r"[A-Za-z_\u00c0-\u024f]"  # a name ends at other letters: Chinese may follow without a space
_WORD = r"[0-9A-Za-z_\u00c0-\u024f]"
_NO_ADDRESS = r"(?! https?:// | www\. )"
_NO_MAIL = r"(?! [0-9A-Za-z_.+-]{1,64}+ @ [0-9A-Za-z-]{1,63}+ \. [A-Za-z] )"
_REST = rf"(?: {_NO_ADDRESS} {_WORD} )*+"
_NAME = rf"{_NO_ADDRESS} {_LETTER}{_REST}"
_HOST = rf"(?: {_NO_ADDRESS} [0-9A-Za-z\u00c0-\u024f-] ){{1,63}}+"
_NUMBER = r"(?: \d{1,4}+ | \* (?: \d{1,2}+ \$ )?+ )?+"
_FLAGS = rf"[-+#0']{{0,4}}+ {_NUMBER} (?: \. {_NUMBER} )?+"  # of printf, with width and precision
_CONVERTED = (
    rf"(?: \#@ \w++ @ | {_FLAGS} (?: {_NO_ADDRESS} [A-Za-z] (?: {_NO_MAIL} {_NO_ADDRESS} {_WORD} )*+ | @ ) )"
)
_NO_CONVERSION = (
    r"(?! [-+\#]?+ (?: \.? \d++ )*+ (?: [A-Za-z$] | \( \w++ \) [A-Za-z]"
    rf"| @ (?! [:.]?+ (?: [{{(] | {_LETTER} ) ) ) )"
)
_PERCENT = r"(?: %{1,2} (?! [%0-9A-Za-z_(@{<\#.*+'-] ) )"
_LINK = rf"@ (?: \. {_NAME} )?+ :"  # of Vue: @:key, @.lower:key
_TAG_NAME = r"[A-Za-z0-9][\w.-]*+"
_VALUE = r"""= (?: "[^"]*+" | '[^']*+' | [^\s<>=]++ )"""
_TAG = rf"< /?+ {_TAG_NAME} (?: \s++ [\w:.-]++ {_VALUE} )*+ \s*+ /?+ >"
# With attributes that have no value, it can be prose: <see below>.
_BARE = rf"< (?P<name> {_TAG_NAME} ) (?: \s++ [\w:.-]++ (?: {_VALUE} )?+ )++ \s*+ (?: /> | (?P<bare> > ) )"
# A tag in brackets that another ends; other words in brackets are prose.
_BRACKETS = r"\[ /?+ (?P<brackets> [A-Za-z][\w-]{0,40}+ ) \]"
# Signs, arrows and pictures; not signs of currencies: translations may spell them out.
_SYMBOL = (
    r"\u00a6\u00a9\u00ac\u00ae\u00b0\u00b1\u00d7\u00f7\u2020-\u2023\u2117\u2122\u2190-\u2767\u2776-\u27e5"
    r"\u27f0-\u2982\u2999-\u29d7\u29dc-\u29fb\u29fe-\u2bff\u3297\u3299\ufffc\ufffd\U0001f000-\U0001fbff"
)
_JOINED = r"\u200d\ufe0e\ufe0f\u20e3\U000e0020-\U000e007f"  # to the symbol before
_CANDIDATE = re.compile(
    rf"""
    (?P<address> https?:// | www\. )
    | @?+ [0-9A-Za-z_.+\u00c0-\u024f-]{{1,64}}+ (?: @ {_HOST} (?: \. {_HOST} ){{1,4}}+ )++  # of people
    | (?P<mark> {" | ".join(mark.pattern for mark in MARKS)} )
    | {_TAG} | {_BARE} | {_BRACKETS} | <% [^<>]*? %>
    | % {_NAME} (?: \. {_NAME} )*+ % {_NO_CONVERSION}  # %name%, not %d%%
        (?<! %{_WORD}% ) (?<! %[hlLjzt][a-zA-Z]% ) (?<! %(?:ll|hh)[a-zA-Z]% )
    | % \d{{1,3}}+ \$ {_CONVERTED}  # %1$s
    | (?P<percent> % {_CONVERTED} )  # %s, %.2f, %@, and %dMB
    | % (?: \( [^()]{{1,60}}+ \) | < [\w.]{{1,60}}+ > ) [ ]?+ {_FLAGS} [hlL]?+ [a-zA-Z]  # %(name)s
    | (?: %{{1,2}}+ L?+ \d{{1,2}}+ (?! \d | \$ (?! \{{ ) ) )++ {_PERCENT}?+ | %%  # %1, %1%
    | (?P<block> (?: {_LINK} | [$\#%@] )?+ \{{ )  # {{name}} and all that is in braces
    | \$ (?: {_NAME} )?+ \( [^()]{{0,200}}+ \)  # $t(name)
    | \$ {_NAME} (?: -> {_NAME} | \. [a-z_] {_REST} )*+ (?: \$ (?! {_WORD} | [{{(] ) )?+  # $name, $name$
    | (?P<prose> \# (?! \d ) \w++  # #subject
        | \$ \d (?! \d | [.,]\d | (?: [kKmMbB] | bn | tn ) \b )  # $1
        | (?: : {_NAME} )++ (?: : (?! \w ) )?+  # :name
        | (?: (?: {_LINK} \( [^()]{{1,60}}+ \) | (?: {_LINK} | @ ) {_NAME} (?: \. {_NAME} )*+ ) )++  # @name
    )
    | & (?: \# \d{{1,7}}+ | \# [xX] [0-9A-Fa-f]{{1,6}}+ | [A-Za-z][0-9A-Za-z]{{1,31}}+ ) ;
    | [0-9\#*] \ufe0f?+ \u20e3 | [{_SYMBOL}] [{_SYMBOL}{_JOINED}]*+
    """,
    re.VERBOSE,
)
_ADDRESS = re.compile(r"""[^\s<>"\u3001\u3002\uff01-\uff20\u300a-\u3011]*+""")  # its rest
# After a number, % is a percent sign (100%sure), unless one conversion stands alone (50%d).
_BEHIND_NUMBER = re.compile(r"\d[ \u00a0\u202f]?\Z")
_CONVERSION = re.compile(rf"% {_FLAGS} (?: hh? | ll? | [jztL] )?+ [A-Za-z@] (?! {_LETTER} )", re.VERBOSE)
_IS_WORD = re.compile(_WORD)
# What braces hold: a name, with an index, arguments or a format; a keyword of Svelte.
_FIELD = re.compile(
    r"""\s*+ (?:
        [$-]?+ [\w.-]*+ (?: \[ [^\[\]]*+ \] [\w.]*+ )*+ (?: \s*+ \( [^()]*+ \) )?+ \s*+ (?: ! \w++ )?+
        (?: : (?! \s++ [^\W\d_] ) .* | [|] .* | , \s*+ -?+ \d .* )?+
        | [#/@:!=] [A-Za-z0-9] .* | [\w-]++ = \S .*
        | '[^']*+' | "[^"]*+"
    ) \s*+""",
    re.VERBOSE,
)
_MAX_FIELD = 80
# Messages in messages: of ICU, of Java, of Fluent.
_MESSAGE = re.compile(
    r"""\s*+ (?:
        \w++ \s*+ , \s*+
        (?: plural | select | selectordinal | choice | number | date | time | duration | ordinal | spellout )
        \b
        | \$ [\w.-]++ \s*+ ->
    )""",
    re.VERBOSE,
)
_END_TAG = re.compile(rf"</({_TAG_NAME})\s*+> | \[/([A-Za-z][\w-]*+)\]", re.VERBOSE)
_BLOCK = re.compile(r"[$#%@]?{")
_CODE = re.compile(r"(?<=[{$#%@]){|{(?=[%'])")  # a brace of an expression, whose strings may have braces
_BRACE = re.compile(r"[{}]")
_IN_CODE = re.compile(r"""[{}] | (?<![\w\\]) (["'`]) (?: [^\\] | \\. ){0,80}? \1""", re.VERBOSE | re.DOTALL)
_LAST_OF_SENTENCE = ".,;:!?'»”’)]}"
_CLOSED_BY = {")": "(", "]": "[", "}": "{"}


def find(text: str) -> list[Range]:
    """Return where the placeholders of a text begin and end, from left to right, with what a user keeps."""
    found, own = recognised(text), kept(text)
    return _united(found + own) if own else found


def recognised(text: str) -> list[Range]:
    """Return where the placeholders of a text begin and end, from left to right, by their forms alone."""
    return list(counted(_placeholders(text)))


def _united(ranges: Iterable[Range]) -> list[Range]:
    """Return ranges in order; those that overlap are one."""
    united: list[Range] = []
    for start, end in sorted(ranges):
        if united and start < united[-1][1]:
            united[-1] = (united[-1][0], max(united[-1][1], end))
        else:
            united.append((start, end))
    return united


def _placeholders(text: str) -> Iterator[Range]:
    ends, closed = blocks(text), frozenset(chain.from_iterable(_END_TAG.findall(text)))
    at = behind = 0  # where to look on, and the end of the last placeholder
    while match := _CANDIDATE.search(text, at):
        start, end = match.span()
        if match.lastgroup == "block" and end - 1 not in ends:
            at = start + 1
            continue
        if match.lastgroup is not None:
            end = _end(match, text[max(behind, start - 2) : start], ends, closed)
        if end > 0:
            yield start, end
            at = behind = end
        else:
            at = match.end() if match.lastgroup == "prose" else start + 1


def _end(match: re.Match[str], before: str, ends: Mapping[int, int], closed: Collection[str]) -> int:
    """Return where a candidate ends; 0 if it is no placeholder.

    Args:
        match: the candidate.
        before: the two characters before it.
        ends: the ends of the blocks of the text.
        closed: the names of the end tags of the text.
    """
    text, (start, end) = match.string, match.span()
    match match.lastgroup:
        case "prose":
            return 0 if _goes_on(before[-1:], text[start]) else end
        case "block":
            end = ends[end - 1]
            return end if text[start] != "{" or is_block(text, start, end) else 0
        case "bare":
            return end if match["name"] in closed else 0
        case "brackets":
            return end if match["brackets"] in closed else 0
        case "address" if text[start] == "w" and _IS_WORD.match(before[-1:]):
            return 0
        case "address":
            address = _ADDRESS.match(text, end)
            return _end_of_address(text, start, address.end() if address else end, ends)
        case "percent" if _BEHIND_NUMBER.search(before):
            conversion = _CONVERSION.match(text, start)
            return conversion.end() if conversion else 0
    return end


def _goes_on(before: str, sign: str) -> bool:
    """Return whether a sign is part of what is before it: of a word, of an amount (US$5), of std::string."""
    return before == sign or (sign == "$" and before in (".", ",")) or _IS_WORD.match(before) is not None


def _end_of_address(text: str, start: int, end: int, ends: Mapping[int, int]) -> int:
    """Return where an address ends, without the punctuation of the sentence and brackets around it."""
    if text[end - 1] == "%" and text[end : end + 1] == "<":  # %<name>s
        end -= 1
    for brace in _BLOCK.finditer(text, start, end):
        if ends.get(brace.end() - 1, 0) > end:  # a placeholder with blanks follows
            end = brace.start()
            break
    counts = Counter(text[start:end])
    while end > start and (char := text[end - 1]) in _LAST_OF_SENTENCE:
        if counts[char] <= counts[_CLOSED_BY.get(char, "")]:
            break
        counts[char] -= 1
        end -= 1
    return end


def blocks(text: str) -> dict[int, int]:
    """Return for each brace that is closed the end of its block, after the brace that closes it."""
    ends: dict[int, int] = {}
    waiting: list[int] = []
    at, last = 0, text.rfind("}")
    while at <= last:
        in_code = waiting and _CODE.match(text, waiting[-1])
        if (match := (_IN_CODE if in_code else _BRACE).search(text, at)) is None:
            break
        at = match.end()
        if match.group() == "{":
            waiting.append(match.start())
        elif match.group() == "}" and waiting:
            ends[waiting.pop()] = at
    return ends


def is_block(text: str, start: int, end: int) -> bool:
    """Return whether a text in braces is a placeholder, a template or a message; else it is prose."""
    inside = text[start + 1 : min(end - 1, start + 1 + _MAX_FIELD)]
    if end - start - 2 <= _MAX_FIELD and _FIELD.fullmatch(inside):
        return True
    if end - start > 4 and (text[start + 1], text[end - 2]) in (("{", "}"), ("%", "%"), ("#", "#")):
        return True
    return _MESSAGE.match(inside) is not None


def placeholders(text: str) -> Counter[str]:
    """Return the placeholders of a text, and how often each is there."""
    return Counter(text[start:end] for start, end in find(text))
