"""Files of text without markup: lines, subtitles, columns of tables, strings of programs."""

import csv
import gettext
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import chain, groupby, islice, pairwise
from operator import attrgetter
from typing import Any

from heedful.data.catalogues import ESCAPES, PoField, po_fields
from heedful.documents.accelerators import with_accelerator, without_accelerator
from heedful.documents.formats import Reading, primary_language
from heedful.documents.markup import without_ruby
from heedful.documents.template import NO_BLANKS, Replacement, Template, Unit, lined_unit
from heedful.documents.tokens import Kind, Token, entity_writer, plain_tokens, tokens_of
from heedful.errors import InputError
from heedful.settings.parsing import parse_json
from heedful.spans.reading import counted
from heedful.spans.spanned_text import has_letters, markup
from heedful.text.scripts import CJK

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_LINE_OR_BLANKS = re.compile(r"(?:[^\S\r\n]*+[\r\n])++|[^\r\n]++(?:\r\n|\r|\n)?+")


_COLUMNS = range(50, 101)  # at which people and programs wrap text
_END_OF_SENTENCE = re.compile(r"[.!?:;\u2026\u3002][)\]}\"'\u201d\u00bb]*\Z")


def read_lines(text: str, reading: Reading) -> Template:
    """Read plain text: each line is a unit, and so are the lines of a paragraph that is wrapped at a column.

    In such a file the first word of a line would not have fitted into the line before.
    """
    units = Template()
    width = max((len(line.group().rstrip()) for line in _LINE_OR_BLANKS.finditer(text)), default=0)
    lines = (line.group() for line in _LINE_OR_BLANKS.finditer(text))  # no list of all
    if width not in _COLUMNS:
        return units.filled(units.plain(line, line, str) for line in lines)
    parts: list[str] = []
    paragraph: list[str] = []
    for line in lines:
        if paragraph and not _goes_on(paragraph[-1], line, width):
            parts.append(_wrapped(paragraph, units))
            paragraph = []
        paragraph.append(line)
    return units.filled([*parts, _wrapped(paragraph, units)])


def _goes_on(line: str, following: str, width: int) -> bool:
    """Return whether a line of a text that is wrapped at a width goes on in the next."""
    first, _, _ = following.strip().partition(" ")
    return _indent(line) == _indent(following) and len(line.rstrip()) + 1 + len(first) > width


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _wrapped(lines: Sequence[str], units: Template) -> str:
    """Return the reference to the unit of a paragraph, or of each of its lines if no sentence is in two."""
    is_paragraph = any(
        after.strip()[:1].islower() and not _END_OF_SENTENCE.search(before.rstrip())
        for before, after in pairwise(lines)
    )
    if not is_paragraph:
        return "".join(units.plain(line, line, str) for line in lines)
    indent = _indent(lines[0])
    raw = "".join(lines)[len(indent) :]
    behind = raw[len(raw.rstrip()) :]
    unit = lined_unit(plain_tokens(raw.rstrip()), _END_OF_LINE, places=_LINE_MAY_END)
    return indent + units.refer(unit) + behind


# Tags, and codes of Advanced SubStation in a cue. Before a small letter, its line end is within a sentence.
_CUE_TAG = re.compile(
    r"<(?P<close>/?)(?P<name>[A-Za-z][^\s<>./]*+|(?=\d++:))[^<>]*+>|\{\\[^{}]*+\}|\\N(?![a-zß-öø-ÿ])|\\h"
)
# What is for players: pictures of the time line, and data.
_FOR_PLAYERS = re.compile(r"(?i)\S+(?:\.(?:jpe?g|png|webp|gif|avif)|#xywh=\S+)(?:[?#]\S*)?|data:\S+")
# What begins the line of a speaker, after tags.
_DASH = re.compile(r"(?m)^(?:[^\S\r\n]|<[^<>]*+>|\{\\[^{}]*+\})*+(?P<dash>[-\u2013\u2014]++[^\S\r\n]*+)")
_MARK = r"[\u061c\u200e\u200f\u202a-\u202e]"  # of the direction of a line
_END_OF_LINE = re.compile(rf"(?P<line_end>(?<!\s)(?<!{_MARK}){_MARK}*+[^\S\r\n]*+[\r\n]\s*+{_MARK}*+)")
_END_OF_CUE_LINE = re.compile(rf"{_END_OF_LINE.pattern[:-1]}|[^\S\r\n]*+\\N[^\S\r\n]*+)")
_LINE_MAY_END = re.compile(rf" |(?<=[{CJK}、。，！？…])(?=[{CJK}])")
_TIMES = re.compile(r"\d\s*+-->\s*+\d")
_TIMES_OR_NOTHING = re.compile(rf"{_TIMES.pattern}|\A[\r\n]*\Z")


_VTT_LANGUAGE = re.compile(r"\A(WEBVTT.*\n(?:(?!.*-->).*\S.*\n)*?Language:[ \t]*)[\w-]+")


def read_subtitles(text: str, reading: Reading) -> Template:
    r"""Read subtitles (SubRip, WebVTT): each cue is a unit, with as many lines as before.

    Characters of WebVTT may be written as entities.

    >>> text = "1\n00:00:01,000 --> 00:00:02,000\nA cat\nsleeps.\n"
    >>> read_subtitles(text, Reading(ending=".srt")).units[0].source.text
    'A cat sleeps.'

    Raises:
        InputError: there is no cue.
    """
    units, is_vtt = Template(), reading.ending == ".vtt"
    if is_vtt and reading.language:
        text = _VTT_LANGUAGE.sub(rf"\g<1>{reading.language}", text)
    return units.filled(_subtitles(text, units, escaped=is_vtt))


def _subtitles(text: str, units: Template, *, escaped: bool) -> Iterator[str]:
    ends_cue = _TIMES_OR_NOTHING if escaped else _TIMES
    lines = _LINE.findall(text)  # the last is empty
    at, num_cues = 0, 0
    while at < len(lines):
        yield lines[at]
        at += 1
        if "-->" not in lines[at - 1]:
            continue
        start, num_cues = at, num_cues + 1
        ends = (number for number in range(start, len(lines)) if ends_cue.search(lines[number]))
        at = next(ends, len(lines))
        if _TIMES.search("".join(lines[at : at + 1])) and lines[at - 1].strip().isdecimal():
            at -= 1  # the number of the next cue
        for _, paragraph in groupby(lines[start:at], str.isspace):
            cue = "".join(paragraph)
            core = cue.rstrip("\r\n")
            yield from (_cue(core, units, escaped=escaped), cue[len(core) :])
    if text.strip() and not num_cues:
        raise InputError("no subtitles: no line has the times of a cue, as in 00:00:01,000 --> 00:00:02,000")


def _cue(cue: str, units: Template, *, escaped: bool) -> str:
    """Return the reference to the unit of a cue."""
    if not has_letters(_CUE_TAG.sub("", cue)) or _is_data(cue.strip()):
        return cue
    dashes = list(counted(_DASH.finditer(cue)))
    is_dialogue = len(dashes) > 1  # where each line is of a speaker
    marks = [(dash.span("dash"), Kind.POINT, "") for dash in dashes if is_dialogue or dash.start() == 0]
    for tag in counted(_CUE_TAG.finditer(cue)):
        kind = Kind.of_tag(single=not tag["name"], close=tag["close"])
        marks.append((tag.span(), kind, tag["name"] or ""))
    tokens = without_ruby(tokens_of(cue, sorted(marks, key=lambda mark: mark[0])))
    unit = lined_unit(
        tokens,
        NO_BLANKS if is_dialogue else _END_OF_CUE_LINE,
        text_of=attrgetter("text" if escaped else "raw"),
        written=entity_writer(tokens, _vtt_tokens) if escaped else markup,
        places=_LINE_MAY_END,
    )
    return units.refer(unit)


def _is_data(cue: str) -> bool:
    """Return whether a cue is for players, not for people."""
    if not cue.startswith(("{", "[")):
        return all(map(_FOR_PLAYERS.fullmatch, cue.split()))
    try:
        parse_json(cue)
    except (ValueError, RecursionError):
        return False
    return True


_VTT_MARKUP = re.compile("<[^<>]*+>|-->")  # no text of a cue may have an arrow


def _vtt_tokens(cue: str) -> list[Token]:
    """Return the text and the markup of a written cue of WebVTT."""
    return tokens_of(cue, [(found.span(), Kind.POINT, "") for found in _VTT_MARKUP.finditer(cue)])


_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"(?P<colon>\s*:)?')


_LOCALE = re.compile(r'("@@locale"\s*+:\s*+")[^"\\]*+')


def read_json(text: str, reading: Reading) -> Template:
    r"""Read strings of a program in JSON: each string is a unit; names of members stay as they are.

    So does what members that begin with @ have: in ARB and JSON-LD they describe others. ARB's "@@locale" is
    the language of the translation.

    Raises:
        InputError: it is not JSON.
    """
    try:
        parse_json(text)
        keys = _keys_of_strings(json.loads(text, strict=False, object_pairs_hook=_Members))
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}") from None
    if reading.language:
        text = _LOCALE.sub(rf"\g<1>{reading.language.replace('-', '_')}", text, count=1)
    units = Template()
    escape = partial(json.dumps, ensure_ascii=text.isascii() and "\\u" in text)

    decoder, described = json.JSONDecoder(strict=False), 0  # the end of what a member has that describes

    def string(match: re.Match[str]) -> str:
        nonlocal described
        raw = match.group()
        if match["colon"] and raw.startswith('"@') and match.start() >= described:
            value = re.compile(r"\s*+").match(text, match.end())
            described = decoder.raw_decode(text, value.end() if value else match.end())[1]
        key = "" if match["colon"] else next(keys)
        if match["colon"] or match.start() < described:
            return raw
        return units.plain(json.loads(raw, strict=False), raw, escape, key=key)

    return units.filled([_JSON_STRING.sub(string, text)])


class _Members(list[tuple[str, Any]]):
    """The members of an object in JSON; a name may come twice."""


def _keys_of_strings(value: object, path: str = "/") -> Iterator[str]:
    """Yield the path of each string that is a value, in order."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, list):
        members = value if isinstance(value, _Members) else enumerate(value)
        for name, member in members:
            yield from _keys_of_strings(member, f"{path}{name}/")


_DELIMITERS = ",;\t|"
_HEAD = 65_536  # characters, and of them the first lines, that tell the delimiter of a table
_NUM_FIRST = 20
_MOST_SHOWN = 50  # columns in a message, and characters of the name of each
_DELIMITER_OF = {".tsv": "\t"}


def parse_columns(values: Iterable[str]) -> list[str]:
    """Return names or numbers of columns, separated by commas; a name with a comma is in quotes, as in CSV.

    >>> parse_columns(["title, 3", '"size, weight"'])
    ['title', '3', 'size, weight']
    """
    readers = (csv.reader(io.StringIO(value, newline=""), skipinitialspace=True) for value in values)
    cells = chain.from_iterable(chain.from_iterable(readers))
    return list(filter(None, map(str.strip, cells)))


def check_columns(text: str, reading: Reading) -> tuple[str, frozenset[int]]:
    """Return the delimiter of a table, and the numbers, from 0, of some columns.

    Args:
        text: the contents of the file; its first lines are enough.
        reading: has the columns, as names or numbers from 1.

    Raises:
        InputError: no columns, one that the table does not have, or a name of several.
    """
    columns, option = reading.columns, reading.option
    named, start = _named_delimiter(text)
    text = text[start:]
    delimiter = _DELIMITER_OF.get(reading.ending) or named or _delimiter(text, columns)
    names = [name.strip() for name in next(_records(text, delimiter), [])]
    if not names:
        return delimiter, frozenset()
    shown = [name[:_MOST_SHOWN] or "(no name)" for name in names[:_MOST_SHOWN]]
    others = f" and {len(names) - len(shown):,} more" if len(names) > len(shown) else ""
    have = f"the table has {', '.join(shown)}{others}"
    if not columns:
        raise InputError(f"which columns hold text? name them in {option}, separated by commas; {have}")
    positions = {str(number): [number] for number in range(1, len(names) + 1)}
    positions |= {name: [] for name in names}  # a name goes before a number
    for number, name in enumerate(names, start=1):
        positions[name].append(number)
    for column in columns:
        found = positions.get(column, [])
        if not found:
            raise InputError(f"no column {column[:_MOST_SHOWN]!r}; {have}; see {option}")
        if len(found) > 1:
            raise InputError(
                f"{column[:_MOST_SHOWN]!r} is the name of columns {', '.join(map(str, found))}; "
                f"choose by number in {option}"
            )
    return delimiter, frozenset(positions[column][0] - 1 for column in columns)


def read_table(text: str, reading: Reading) -> Template:
    """Read a table of delimited columns, with a line of their names: each cell of some columns is a unit.

    Raises:
        InputError: no columns, or one that the table does not have; no table.
    """
    delimiter, numbers = check_columns(text, reading)
    at = _named_delimiter(text)[1]
    units = Template()

    def parts() -> Iterator[str]:
        yield text[:at]
        column, is_head = 0, True
        for match in _cells(text[at:], delimiter):
            raw = match["raw"]
            if not is_head and column in numbers:
                raw = units.plain(_value(match), raw, _as_cell(delimiter, quoted=raw.startswith('"')))
            yield from (match["before"], raw, match["behind"], match["end"])
            column += 1
            if match["end"] != delimiter:
                column, is_head = 0, False

    return units.filled(parts())


def _cells(text: str, delimiter: str) -> Iterator[re.Match[str]]:
    """Yield each cell of a table, with its end.

    Raises:
        InputError: a quote has no end, or text follows it.
    """
    own = re.escape(delimiter)
    cell = re.compile(
        rf"""(?P<before> [ ]*+ (?=") | )
            (?P<raw> " (?: [^"] | "" )* " | [^"\r\n{own}] [^\r\n{own}]* | )
            (?P<behind> (?<=") [ ]*+ | )
            (?P<end> {own} | \r\n | \r | \n | \Z )""",
        re.VERBOSE,
    )
    at, line = 0, 1
    while at < len(text):
        match = cell.match(text, at)
        if match is None:
            raise InputError(f"line {line}: not a table: a quote has no end, or text follows it")
        yield match
        line += match.group().count("\n")
        at = match.end()


def _named_delimiter(text: str) -> tuple[str | None, int]:
    """Return the delimiter that a first line `sep=;` names for Excel, and where the table begins."""
    named = re.match(r"sep=(.)(?:\r\n|\r|\n)", text, re.IGNORECASE)
    return (named[1], named.end()) if named else (None, 0)


def _value(cell: re.Match[str]) -> str:
    raw: str = cell["raw"]
    return raw[1:-1].replace('""', '"') if raw.startswith('"') else raw


def _records(text: str, delimiter: str) -> Iterator[list[str]]:
    """Yield the values of each line of a table.

    Raises:
        InputError: see `_cells`.
    """
    values: list[str] = []
    for cell in _cells(text, delimiter):
        values.append(_value(cell))
        if cell["end"] != delimiter:
            yield values
            values = []
    if values:  # the text ends with a delimiter
        yield values


def _delimiter(text: str, columns: Sequence[str]) -> str:
    """Return the delimiter that gives the table these columns, else the likeliest.

    The likeliest gives the first line several columns, all others equally many, and then the most.
    """

    def likelihood(delimiter: str) -> tuple[bool, bool, bool, int]:
        first: list[list[str]] = []
        with suppress(InputError):
            first.extend(islice(_records(text[:_HEAD], delimiter), _NUM_FIRST))  # those before an error stay
        if len(text) > _HEAD and len(first) > 1:
            first.pop()  # it may be cut
        lengths = [len(values) for values in first if values != [""]] or [0]
        names = set(map(str.strip, chain.from_iterable(first[:1])))
        numbers = set(map(str, range(1, lengths[0] + 1)))
        is_table = lengths[0] > 1
        return is_table and set(columns) <= names | numbers, is_table, len({*lengths}) == 1, lengths[0]

    return max(_DELIMITERS, key=likelihood)


@cache
def _as_cell(delimiter: str, *, quoted: bool) -> Callable[[str], str]:
    def written(text: str) -> str:
        needs_quotes = quoted or not {delimiter, '"', "\r", "\n"}.isdisjoint(text)
        return '"' + text.replace('"', '""') + '"' if needs_quotes else text

    return written


_ESCAPE_OF = {ord(char): f"\\{name}" for name, char in {**ESCAPES, "\\": "\\", '"': '"'}.items()}
_LANGUAGE = re.compile(r"(?im)^Language:[ \t]*([a-z]{2,3})(?![a-z])")
_MOST_COUNTED = 300  # numbers that tell the forms of plurals
_PLURAL_FORMS = re.compile(r"""(?im)^Plural-Forms:.*?\bplural\s*=([^;\n]+)""")


def read_po(text: str, reading: Reading) -> Template:
    """Read a catalogue of gettext: what has no translation yet is a unit; all else stays.

    Raises:
        InputError: something that no catalogue has, or a catalogue for another language.
    """
    units, replaced = Template(), list[Replacement]()
    forms, context, singular, plural = "n != 1", "", "", ""
    for entry in po_fields(text):
        if entry.keyword == "msgctxt":
            context = entry.text
        elif entry.keyword == "msgid":
            singular, plural = entry.text, ""
        elif entry.keyword == "msgid_plural":
            plural = entry.text
        elif not entry.keyword.startswith("msgstr"):
            continue
        elif not singular:
            forms = _forms_of_header(entry.text, reading) or forms
            replaced += _language_of_header(entry, reading.language)
        elif not entry.text and not (singular in _CREDITS or context in _CREDITS):
            source = plural if plural and not _is_singular(entry.keyword, forms) else singular
            accelerator, source = without_accelerator(source)
            if has_letters(source):
                unit = units.refer(Unit(source, _as_po(text, accelerator)))
                replaced.append((entry.strings[0].start(), entry.strings[-1].end(), unit))
        if entry.keyword.startswith("msgstr"):
            context = ""
    return units.replaced(text, replaced)


# Messages in place of which GNOME and KDE show who has translated them, and contexts of such messages.
_CREDITS = frozenset({
    "translator-credits", "translator_credits", "translators", "NAME OF TRANSLATORS", "EMAIL OF TRANSLATORS",
    "Your names", "Your emails",
})  # fmt: skip
_LANGUAGE_OF_HEADER = re.compile(r"(?i)(?<=\"Language:)[ \t]*(?P<name>[\w@.-]*)(?=\\n)")


def _language_of_header(header: PoField, language: str | None) -> Iterator[Replacement]:
    """Yield the language of the translation in place of another, or none, in the header of a catalogue."""
    for string in header.strings if language else ():
        named = _LANGUAGE_OF_HEADER.search(string.group())
        if named and primary_language(named["name"]) != primary_language(language or ""):
            start, end = (string.start() + at for at in named.span())
            yield start, end, f" {(language or '').replace('-', '_')}"


def _forms_of_header(header: str, reading: Reading) -> str | None:
    """Return the formula of plurals in the header of a catalogue, if it has one.

    Raises:
        InputError: it is a catalogue for another language than those of the translation.
    """
    language, source = reading.language, reading.source
    named = _LANGUAGE.search(header)
    expected = {primary_language(tag) for tag in (language, source) if tag}
    if language and named and named[1].lower() not in expected:
        raise InputError(f"its language is {named[1]}, and the translation would be in {language}")
    forms = _PLURAL_FORMS.search(header)
    return forms[1] if forms else None


@cache
def _is_singular(keyword: str, forms: str) -> bool:
    """Return whether a form of a message is for 1 alone (and 0), by the formula of its language."""
    try:
        form_of = gettext.c2py(forms)
        one, *others = map(form_of, range(1, _MOST_COUNTED))
    except (ValueError, ZeroDivisionError):
        one, others = 0, [1]
    return keyword == f"msgstr[{one}]" and one not in others


def _as_po(file: str, accelerator: str) -> Callable[[str], str]:
    """Return a function that writes a text as strings of the file, with the line ends of the file."""
    end = match.group() if (match := re.search(r"\r\n|\r|\n", file)) else "\n"

    def quoted(line: str) -> str:
        return f'"{line.translate(_ESCAPE_OF)}"'

    def written(text: str) -> str:
        text = with_accelerator(text, accelerator)
        lines = re.findall(r"[^\n]*\n|[^\n]+", text)
        return quoted(text) if len(lines) == 1 else end.join(['""', *map(quoted, lines)])

    return written
