"""The parser of Markdown: CommonMark, tables, and what generators and editors read in a page besides.

Two tables of patterns are rules of the parser. Lines that are code or data are blocks of their own, and marks
inside a text are inline tokens. Marks are tried before escapes and HTML; inside a code
span, nothing is a mark.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from heedful.errors import needing

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.ruler import RuleOptionsType
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

Environment = dict[str, Any]  # what the parser keeps of a page: where each link is defined
LITERAL, HTML_TAG = "literal", "jsx"  # the types of blocks of lines that stay
_MAX_INDENT = 100  # characters before a mark that begins its line
_MAX_LINES = 1000  # of code between tags, a bound for the time of a search for its end

# {…} with braces inside, and a tag of JSX or Vue: the values of attributes may be expressions.
_BRACES = r"\{ [^{}]*+ \}"
for _ in range(5):
    _BRACES = rf"\{{ (?: [^{{}}] | {_BRACES} )*+ \}}"
_VALUE = rf"""(?: \s*+ = \s*+ (?: "[^"]*+" | '[^']*+' | {_BRACES} ) )?+"""
_TAG = r"< {name} (?: \s++ (?: [\w:.@\#-]++ {value} | {braces} ) )*+ \s*+ /?+ >"
_COMPONENT = _TAG.format(name=r"/?+ (?: [A-Z][\w.]*+ )?+", value=_VALUE, braces=_BRACES)
_ANY_TAG = _TAG.format(name=r"[A-Za-z][\w.:-]*+", value=_VALUE, braces=_BRACES)
_COMMENT = r"\{/\* (?s: .{0,2000}? ) \*/\}"
# The names of tags of Liquid, Nunjucks and Hugo around code, data and descriptions of pictures.
_CODE = (
    "highlight | code | codeblock | code-block | code_example | configuration | configuration_basic | mermaid"
    " | plantuml | graphviz | chart | diagram | math | katex | latex | comment | javascript | script"
    " | stylesheet | style | css | json | yaml | schema | verbatim"
)
_DISPLAY = r"\$\$ (?: (?! \$\$ | \n[ \t>]*\n | ~~~ ) [^`] )++ \$\$"
# A formula, not \[escaped brackets\].
_BRACKETS = r"""\\\[ (?= (?: (?! \\[\[\]] | \n[ \t>]*\n ) [^`=^_{}] )*+ [=^_{}] )
    (?: (?! \\[\[\]] | \n[ \t>]*\n ) [^`] )++ \\\]"""
_ENVIRONMENT = r"""\\begin\{ (?P<environment> [\w*]++ ) \}
    (?: (?! \\end\{ | \n[ \t>]*\n ) [^`] ){0,2000}+ \\end\{ (?P=environment) \}"""
_YAML_LINE = r"(?: [a-z][\w-]*+ : (?: [ ] .* )? | [ \t]++ \S .* | - [ ] .* | \# .* )"

# Lines that stay but for their titles: the groups "title…". They end with a line.
_LITERAL = re.compile(
    rf"""(?:
    # Code between tags, without another tag that begins such code.
    \{{%-?+ \s*+ (?P<liquid> {_CODE} ) \b [^\n]*+ \n
        (?: (?! [ \t>]*+ \{{%-?+ \s*+ (?P=liquid) \b ) .*+ \n ){{0,{_MAX_LINES}}}? [ \t>]*+
        \{{%-?+ \s*+ end_?+ (?P=liquid) \b .*
    | \{{\{{[<%] \s*+ (?P<shortcode> {_CODE} ) \b [^\n]*+ \n
        (?: (?! [ \t>]*+ \{{\{{[<%] \s*+ (?P=shortcode) \b ) .*+ \n ){{0,{_MAX_LINES}}}? [ \t>]*+
        \{{\{{[<%] \s*+ / \s*+ (?P=shortcode) \b .*
    # Tags, comments and attributes on lines of their own.
    | \{{\{{ [<%] [^\n]*+ (?<= \}} ) | \{{% [^\n]*+ (?<= %\}} ) | \{{ : [^{{}}\n]*+ \}} | {_COMMENT}
    | .* \n [ \t]*+ \{{: [ ]*+ toc \b .*
    # Formulas.
    | {_DISPLAY} | {_BRACKETS} | {_ENVIRONMENT}
    # Modules of MDX; properties of Logseq; inclusions, names and tables of contents.
    | import \s (?: [^'"]{{0,2000}}+ (?<= [\s\}}] from [ ] ) )?+ ['"] [^'"\n]++ ['"] ;?+
    | export [ ] (?: (?: const | let | var ) [ ] [^=\n]++ =
        | default [ ] | (?: async [ ] )?+ function [ ] | \{{ )
        .*+ (?: \n [ \t]*+ \S .*+ )*+
    | [a-z][\w/-]*+ :: (?: [ ] .* )?
    | \[TOC\] | \[\[_TOC_\]\] | -+8<-+ .* | <<<[ ] .* | \([\w-]++\)= | ///+
    # Directives, with their options; containers. A title is the last on its line, or in brackets.
    | (?P<container> :::++ ) [ \t]*+ (?:
        \{{ [\w:-]++ \}} (?: [ \t]++
            (?P<title_of_directive> [^\W\d_] [^ \t\n]*+ (?: [ \t]++ [^ \t\n]++ )*+ ) )?
            (?: \n [ \t]*+ : [\w-]++ : .*+ )*+
        | (?: [\w-]++ | \{{[^{{}}\n]*+\}} ) [ \t]++ (?: \| [ \t]++ )?+
            (?P<title_of_container> [^\W\d_] [^={{}}\n]*+ )
        | [\w-]++ \[ (?P<title_in_brackets> [^\[\]\n]*+ ) \] .*
        | .*? \b alt-text=" (?P<title_of_image> [^"\n]*+ ) " .*
        | .* )
    # Blocks of MkDocs. A block of slashes has a kind alone or before a "|"; else it is prose.
    | ///++ [ \t]* (?:
        (?! html \b ) [\w-]++ [ \t]*+ \| [ \t]*+ (?P<title_of_block> [^\W\d_] [^={{}}\n]*+ )
        | [\w-]++ [ \t]*+ (?: \| .* )? )
    )[ \t]*$""",
    re.VERBOSE | re.MULTILINE,
)
# Lines that stay if no text is before them in a paragraph.
_ALONE = re.compile(
    rf"""(?: {_BRACES}
    | % (?: [ ] .* )?  # a comment of MyST
    | --- \n (?: {_YAML_LINE} \n )++ ---  # data of a slide, or of a directive
    )[ \t]*$""",
    re.VERBOSE | re.MULTILINE,
)
_TAG_LINE = re.compile(rf"(?: {_COMPONENT} | {_ANY_TAG} ) [ \t]*$", re.VERBOSE | re.MULTILINE)
# The first lines of notes and tabs of MkDocs, with indented content.
_INDENTED = re.compile(
    r"""(?: (?: !!! | \?\?\?\+? ) [ \t]* (?= ["a-z] ) | ===[!+]? [ \t]* (?= " ) )
    [^"\n]*+ (?: " (?P<title> [^"\n]*+ ) " )? [ \t]*$""",
    re.VERBOSE | re.MULTILINE,
)
_INDENT = 4

# Marks that begin a line: boxes of tasks, kinds of notes, abbreviations, bars of verse.
_LABEL = re.compile(
    r"""\[[ xX]\] (?=[ \t])
    | \[![\w-]++\][-+]? (?: (?=[ \t]*$) | [ \t]++ (?P<title> [^\s\[(] .* ) $ )
    | \*\[[^\[\]\n]++\]:
    | \| (?=[ ] [^|\n]++ $)""",
    re.VERBOSE | re.MULTILINE,
)
# Marks anywhere in a text. Formulas in $ have no blank at their ends: not $5 and $6.
_MARK = re.compile(
    rf"""
    !\[\[ [^\[\]\n]++ \]\] | \[\[ [^\[\]|\n]++ \]\] (?! [(\[:] )
    | (?P<page> \[\[ [^\[\]|\n]++ \| ) [^\[\]\n]++ (?P<end_of_page> \]\] )
    | (?P<highlight> == ) (?! [\s=] ) (?: [^\n=] | = (?! = ) )++ (?<! \s ) (?P<end_of_highlight> == ) (?! = )
    | (?P<low> (?<! ~ ) ~ (?! ~ ) ) [^\s~]++ (?P<end_of_low> ~ (?! ~ ) )
    | (?P<high> (?<= [^\s\[] ) \^ ) [^\s\[\]^]++ (?P<end_of_high> \^ )
    | %% [^%\n]++ %% | (?<= \s ) \^[\w-]++ (?= [ \t]*$ )
    | (?P<fixed> {_DISPLAY} | {_BRACKETS} | {_ENVIRONMENT} )
    | (?<= [)\]`*_^~=] ) (?P<attributes> \{{ :?+ (?: [ \t]*+ (?: [\#.][\w\\-]++
        | [\w-]++= (?: "[^"\n]*+" | [^\s{{}}"]++ ) ) )++ [ \t]*+ \}} )
    | (?<! [\w:] ) : [a-z][a-z0-9_]*+ (?: - [a-z0-9_]++ )++ : (?! [\w:] )
    | (?<! [\w+] ) \+\+ [\w-]++ (?: \+ [\w-]++ )*+ \+\+ (?! [\w+] )
    | \[\^[^\s\[\]]++\]
    | \[! [A-Za-z][\w-]*+ (?: [ ]?+ \[ [^\[\]\n]*+ \] \( [^()\n]*+ \) | [ ] [^\[\]\n]*+ ) \] (?! [(\[] )
    | \\\( (?: (?! \\ [()] ) [^`\n] )++ \\\)
    | \\[A-Za-z]++ (?: \{{ [^{{}}\n]*+ \}} )*+ | \{{[a-z][\w:.-]*+\}}`[^`\n]++`  # TeX, MyST
    | (?<! [\w$] ) \$ (?= [\w\\({{\[|+-] ) [^$`\n]++ (?<! [\s\\] ) \$ (?! [\w$] )
    | {_COMMENT} | (?P<html_inline> {_ANY_TAG} )
    """,
    re.VERBOSE | re.MULTILINE,
)
_PAIRS = ("page", "highlight", "low", "high")


def markdown_parser() -> "MarkdownIt":
    """Return the parser of blocks and of what is in a text.

    Raises:
        MissingExtraError: it is not installed.
    """
    with needing("Markdown needs markdown-it-py and mdit-py-plugins", extra="documents"):
        from markdown_it import MarkdownIt
        from mdit_py_plugins.deflist import deflist_plugin
        from mdit_py_plugins.footnote import footnote_plugin
    parser = MarkdownIt("commonmark").use(deflist_plugin).use(footnote_plugin)
    parser.enable(["table", "strikethrough"])
    # A text is parsed where it stands in the file (`inline_tokens`), not as the blocks have it.
    parser.disable(["inline", "text_join", "footnote_tail", "footnote_inline", "footnote_ref"])
    ends_paragraph: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    parser.block.ruler.before("table", "indented", _indented, ends_paragraph)
    parser.block.ruler.before("table", LITERAL, _literal, ends_paragraph)
    parser.inline.ruler.before("text", "mark", _mark)
    return parser


def inline_tokens(parser: "MarkdownIt", text: str, page: Environment) -> "list[Token]":
    """Return the tokens of a text, such as a heading, with the definitions of links of its page."""
    tokens: list[Token] = []
    parser.inline.parse(text, parser, page, tokens)
    return tokens


def _literal(state: "StateBlock", start: int, end: int, silent: bool) -> bool:  # noqa: FBT001
    """Parse lines that a generator reads. Its token has the places of titles."""
    if state.is_code_block(start):
        return False
    place = state.src, state.bMarks[start] + state.tShift[start], state.eMarks[end - 1]
    found, kind = _LITERAL.match(*place), LITERAL
    if found is None and not silent:
        found = _ALONE.match(*place)
    if found is None and state.src.startswith("<", place[1]):
        found, kind = _TAG_LINE.match(*place), HTML_TAG
        # CommonMark knows the others.
        if found and not (found[0][1:3].strip("/")[:1].isupper() or "{" in found[0]):
            return False
    if found is None:
        return False
    if not silent:
        state.line = start + 1 + found[0].rstrip("\n").count("\n")
        _push(state, kind, start, found)
    return True


def _indented(state: "StateBlock", start: int, end: int, silent: bool) -> bool:  # noqa: FBT001
    """Parse a note or a tab of MkDocs: its first line, and indented blocks."""
    if state.is_code_block(start):
        return False
    found = _INDENTED.match(state.src, state.bMarks[start] + state.tShift[start])
    if found is None or silent:
        return found is not None
    behind = start + 1
    while behind < end and (state.isEmpty(behind) or state.sCount[behind] >= state.blkIndent + _INDENT):
        behind += 1
    _push(state, LITERAL, start, found)
    around = state.lineMax
    state.lineMax = behind
    state.blkIndent += _INDENT
    state.md.block.tokenize(state, start + 1, behind)
    state.blkIndent -= _INDENT
    state.lineMax = around
    state.line = behind
    return True


def _push(state: "StateBlock", kind: str, start: int, found: re.Match[str]) -> None:
    token = state.push(kind, "", 0)
    token.map = [start, state.line]
    token.content = found.group()
    token.meta["at"] = found.span()
    titles = (name for name, text in found.groupdict().items() if name.startswith("title") and text)
    token.meta["titles"] = [found.span(name) for name in titles]


def _mark(state: "StateInline", silent: bool) -> bool:  # noqa: FBT001
    """Parse a mark in a text, or one that begins its line."""
    src, at = state.src, state.pos
    before = src[max(0, at - _MAX_INDENT) : at].rstrip(" \t")
    label = _LABEL.match(src, at, state.posMax) if before[-1:] in ("", "\n") else None
    found = label or _MARK.match(src, at, state.posMax)
    if found is None:
        return False
    if silent:
        state.pos = found.end()
        return True
    groups: Mapping[str, str | None] = found.groupdict()
    pair = next((name for name in _PAIRS if groups.get(name)), None)
    if pair:
        _add_pair(state, found, pair)
    else:
        state.pos = found.end()
        token = state.push("html_inline" if groups.get("html_inline") else "mark", "", 0)
        token.content = found.group()
        token.meta = {
            "is_fixed": label is not None or bool(groups.get("fixed")),
            "is_attached": bool(groups.get("attributes")),
            "title": groups.get("title"),
        }
    return True


def _add_pair(state: "StateInline", found: re.Match[str], name: str) -> None:
    """Add two marks, and the tokens of the text between them."""
    end, behind = found.span(f"end_of_{name}")
    state.push("pair_open", "", 1).markup = found[name]
    around = state.posMax
    state.pos, state.posMax = found.end(name), end
    state.md.inline.tokenize(state)
    state.pos, state.posMax = behind, around
    state.push("pair_close", "", -1).markup = found[f"end_of_{name}"]
