"""Markdown: its marks stay as they are, no model sees them, and emphasis is recognised wherever it goes."""

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import markdown
import markdown_it
import pytest
from document_files import Output, identity, translated_bytes, upper

from heedful.documents.formats import Reading
from heedful.documents.markdown import read_markdown
from heedful.spans.spanned_text import Builder, SpannedText, markup, with_line_ends
from heedful.spans.words import words

HTML_IN_BLOCKS = """\
> <div>
> The door is closed.
> </div>

- > <pre>
  > two
  >
  > lines
  > </pre>
- <ul>
    <li>an item</li>

  </ul>

 <p class="a">a <b>line</b></p>
"""
OTHER_MARKDOWN = """\
- [ ] a task
1. [x] another *one*

> [!NOTE]
> So it is [^1], and $a_1*b_1$ is more than $x$. It costs $5 and $6.
> $$
> a*b
> - c
> $$
> It is a door[^a b][^long-name].

[^1]: door
[^long-name]: a `house` of
two lines

$$ \\frac{a_b}{c} $$

```
echo $$
```
The number is `$$`, and \\[^1] is a text.
"""


def translated(text: str, translate: Callable[..., Sequence[Output]], folder: Path) -> str:
    (folder / "a.md").write_bytes(text.encode())
    return translated_bytes(folder / "a.md", translate).decode()


def seen(text: str) -> list[str]:
    """Return the texts that a model sees."""
    units = read_markdown(text, Reading()).units
    return [unit.source.text for unit in units]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("text", [HTML_IN_BLOCKS, OTHER_MARKDOWN])
def test_marks_of_blocks_footnotes_tasks_and_formulas_stay(text: str, end: str, tmp_path: Path) -> None:
    text = text.replace("\n", end)
    assert translated(text, identity, tmp_path) == text
    assert translated(text, upper, tmp_path).casefold() == text.casefold()
    assert not re.search(r"[>_]|\[[ x!^](?!a b|1\] is a text)|a\*|[$][^56]|class", " ".join(seen(text)))


@pytest.mark.parametrize(
    "text", ["It costs $5 and $6.", "20$, 30$ or US$5 to A$6", "\\$a$", "a $ b $ c", "'$' or '$'"]
)
def test_sums_of_money_are_no_formulas(text: str) -> None:
    assert seen(text) == [text.replace("\\", "")]


DIALECTS = """\
:::note

The house is small.
The dog sleeps.

:::

::: {.callout-tip}
A tip.

::::warning[My title]
- an item
::::
:::

::: tip A title here
So it is.
:::

!!! note "The house"
    The house is small.

    The dog sleeps.

    - an item

??? warning
    A dog.

???+ warning "More"
    A dog.

=== "First tab"

    The first.

=== "Second tab"

    The second.

The house
: The house is small.
  It is old.

: Another one.

The text is here [^1].

[^1]: A note.

    Its second paragraph.

The dog sleeps in [[The Garden]] and in [[The Page|the garden]].

![[The House.png]]

[TOC]

--8<-- "the-house.md"

*[HTML]: The house is small.
*[CSS]: The dog sleeps.

> [!tip]- My *title*
> Body text. %% a comment %% And more. ^block-id

import Tabs from '@theme/Tabs';

/// warning | The page
The dog reads.
///

| Lines of a poem
| which is old

\\newpage

See \\cite{doe}, {ref}`the-cat`.

(the-door)=

<<< @/the-code.js

| The house<br>The dog |
|---|
| a cell |
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_blocks_of_generators_keep_their_marks_and_are_translated(end: str, tmp_path: Path) -> None:
    text = DIALECTS.replace("\n", end)
    assert translated(text, identity, tmp_path) == text
    written = translated(text, upper, tmp_path)
    assert written.casefold() == text.casefold()
    kept = (
        "note callout-tip warning tip note warning warning The Garden The Page The House.png the-house.md"
        " tip a comment block-id import Tabs from theme Tabs warning newpage cite doe ref the-cat the-door"
        " the-code.js br"
    )
    assert re.findall(r"[A-Za-z]*[a-z][\w.-]*", written) == re.findall(r"[\w.-]+", kept)
    texts = seen(text)
    assert {"The house", "The dog"} <= {each for text in texts for each in re.split("[\v\n]", text)}
    assert not re.search(r"[:!?=]{3}|\[|%%|[^.]\^", " ".join(texts))


@pytest.mark.parametrize(
    "text",
    [
        '```\n!!! note "A"\n:::note[B]\n> [!tip] C\n```\n',
        "[[1]](/a)\n",
        "`[[a]] !!! b`\n",
        ":::\n",
        "C:\\a\\bc\n",
    ],
)
def test_what_only_looks_like_a_mark_stays(text: str, tmp_path: Path) -> None:
    assert translated(text, upper, tmp_path) == text


@pytest.mark.parametrize("kept", [r"\(x+y\)", r"\(\alpha_1 (b*c*d)\)", "export const meta = {a: 'b'}"])
def test_formulas_in_brackets_and_exports_stay(kept: str, tmp_path: Path) -> None:
    text = f"{kept}\n" if kept.startswith("export") else f"A dog is {kept} big.\n"
    assert kept in translated(text, upper, tmp_path)


def test_a_title_of_a_container_is_a_text_of_its_own() -> None:
    assert seen(":::note[The house]\nThe dog.\n:::\n") == ["The house", "The dog."]
    assert seen('!!! note "The house"\n    The dog.\n') == ["The house", "The dog."]
    assert seen("/// note | The house\nThe dog.\n///\n") == ["The house", "The dog."]
    assert sorted(map(str.strip, seen("> [!note] The house\n> The dog.\n"))) == ["The dog.", "The house"]


@pytest.mark.parametrize(
    "text",
    [
        "a cat\n///\nsleeps here\n",
        "- item\n///\n",
        "//////\nThe house\n====\n",
        "/// Adds one\nto the number\n",
        "| Name\n|---\n| cat\n",
        "- | Name\n  |---\n  | cat\n",
        "> | Name | Age\n> | --- | ---\n> | a cat\n> | dog\n\n| verse one\n| verse two\n",
    ],
)
def test_slashes_and_tables_without_closing_marks_stay(text: str, tmp_path: Path) -> None:
    assert translated(text, identity, tmp_path) == text
    assert translated(text, upper, tmp_path) == text.upper()


def test_rows_of_a_table_without_closing_marks_are_cells() -> None:
    texts = seen("| Name\n|---\n| cat\n| dog\n\n| verse one\n")
    assert list(map(str.strip, texts)) == ["Name", "cat", "dog", "verse one"]


def test_a_block_of_html_has_a_selector_and_no_title(tmp_path: Path) -> None:
    text = "/// html | div.my-class\nThe dog.\n///\n"
    assert translated(text, upper, tmp_path) == text.replace("The dog", "THE DOG")


def outputs(text: str, links: Sequence[tuple[int, int]]) -> Callable[..., list[Output]]:
    return lambda texts, _: [Output(text, links) for _ in texts]


@pytest.mark.parametrize(
    ("source", "output", "links", "written"),
    [
        ("a *b* **c**.", "x y.", [(0, 0), (1, 1), (2, 1)], "x *y*."),
        ("a *b* **~~c~~**.", "x y.", [(0, 0), (1, 1), (2, 1)], "x *y*."),
        ("*b* [c](http://c)", "y", [(0, 0), (1, 0)], "*y*[c](http://c)"),
        ("*b* [**c d**][c]\n\n[c]: /c", "y", [(0, 0), (1, 0)], "*y*[**c d**][c]\n\n[c]: /c"),
        ("*b* [](/c)", "y", [(0, 0)], "*y* [](/c)"),
        ("*b* <i>c</i>", "y", [(0, 0), (1, 0)], "*y*<i></i>"),
    ],
)
def test_emphasis_of_lost_words_is_dropped_and_a_link_keeps_its_own(
    source: str, output: str, links: Sequence[tuple[int, int]], written: str, tmp_path: Path
) -> None:
    assert translated(source, outputs(output, links), tmp_path) == written


@pytest.mark.slow
def test_emphasis_is_recognised_wherever_its_words_go(tmp_path: Path) -> None:
    source = "I *am* hungry **now** and _very_ tired, ~~`I` [am **so** *very*](u)~~ __old__."
    sampled = random.Random(1)
    parser = markdown_it.MarkdownIt("commonmark").enable("strikethrough")
    for _ in range(500):
        output = " ".join(
            sampled.choices(
                ("Haus", "der", "Tür,", "(alt)", "„ich“", "so.", "家「と」"), k=sampled.randrange(1, 9)
            )
        )
        num = len(words(output))
        links = [(sampled.randrange(14), sampled.randrange(num)) for _ in range(12)]
        written = translated(source, outputs(output, links), tmp_path)
        shown = re.sub("<[^>]*>", "", parser.render(written))
        assert not re.search(r"[*_~]|\]\(", shown), (written, links)
        assert "](u)" in written


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        "<b>",
        "<b> a ",
        "<b>a</b> ",
        "[^",
        "$a ",
        "$$ a\n",
        "[^1]: a\n",
        "$a$ ",
        "a a\n",
        "a a ",
        "\\[ ",
        "\\begin{a} ",
        "import {\n",
        "{% code %}\n",
        "> export default x\n- \n",
        "<Foo a={",
    ],
)
def test_the_time_of_a_paragraph_grows_with_its_length(unit: str) -> None:
    text = unit * 20_000 + " a"  # in the square of which some would take minutes
    assert "a" in read_markdown(text, Reading()).units[-1].written(SpannedText("a"))


def test_the_time_of_line_ends_grows_with_the_length_of_the_text() -> None:
    lines = ["I am hungry."] * 80_000
    source = SpannedText(" ".join(lines))
    ends = [(13 * number - 1, "\n") for number in range(1, len(lines))]
    assert with_line_ends(source, [], len(source.text)) == source
    assert markup(with_line_ends(source, ends, len(source.text))) == "\n".join(lines)


def test_line_ends_are_at_blanks_of_the_text() -> None:
    builder = Builder()
    builder.text("a ")
    builder.point("<b c>")
    builder.text(" d")
    assert markup(with_line_ends(builder.built(), [(1, "\n")], 3)) in ("a\n<b c> d", "a <b c>\nd")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("A text \\[ x = y \\] here.", "A TEXT \\[ x = y \\] HERE."),
        ("A \\[text\\] here.", "A \\[TEXT\\] HERE."),
        ("\\begin{a}\nx &= y\n\\end{a}\n\nA text.", "\\begin{a}\nx &= y\n\\end{a}\n\nA TEXT."),
        ("A ![house](a.png){width=50%} is.", "A ![HOUSE](a.png){width=50%} IS."),
        ("A [house](u){#b .c} and `code`{.py} is.", "A [HOUSE](u){#b .c} AND `code`{.py} IS."),
        ('A <img alt="house" src=x> is.', 'A <img alt="HOUSE" src=x> IS.'),
        ('<p>\n<img alt="house" src=x>\n</p>', '<p>\n<img alt="HOUSE" src=x>\n</p>'),
        ('<TabItem value="a" label="house">\n\nA dog.', '<TabItem value="a" label="HOUSE">\n\nA DOG.'),
        ("Press :octicons-x-16: or ++ctrl+alt++ now.", "PRESS :octicons-x-16: OR ++ctrl+alt++ NOW."),
        ('[house](u "a title") ![dog](x \'a "b" c\')', '[HOUSE](u "A TITLE") ![DOG](x \'A "B" C\')'),
        ("A &lt; b and&nbsp;so &amp; on", "A &lt; B AND&nbsp;SO &amp; ON"),
        ('A &amp; b & c &quot;d" \\* and *', 'A &amp; B & C &quot;D" \\* AND *'),
        ("<pre>\nas it is\n</pre>", "<pre>\nas it is\n</pre>"),
    ],
)
def test_marks_of_markdown_programs_stay_as_they_are(source: str, expected: str, tmp_path: Path) -> None:
    assert translated(source, upper, tmp_path) == expected
    assert translated(source, identity, tmp_path) == source


@pytest.mark.parametrize("unit", ["a & ", "a | ", "a ~ ", "a &lt; < "])
def test_a_paragraph_of_bare_signs_is_written_in_one_pass(unit: str, tmp_path: Path) -> None:
    text = f"{unit * 50_000}b\n"  # which would take minutes if each sign looked at all of them
    assert translated(text, identity, tmp_path) == text


@pytest.mark.parametrize("output", ["<b>a</b> cat", "a <!-- cat", "a <a@b.c> cat", "<"])
def test_a_translation_adds_no_tags_beside_bare_signs(output: str) -> None:
    [unit] = read_markdown("1 < 2 > cats\n", Reading()).units
    written = unit.written(SpannedText(output))
    [token] = markdown_it.MarkdownIt("commonmark").parseInline(written)
    assert token.children is not None
    assert "".join(each.content for each in token.children if each.type.startswith("text")) == output
    assert unit.written(SpannedText("2 > 1 < cats")) == "2 > 1 < cats"


GENERATORS = {
    "liquid": '{% highlight ruby %}\ndef show\n  puts "hello"\nend\n{% endhighlight %}',
    "liquid in an item": "- {% highlight ruby %}\n  puts 1\n\n  {% endhighlight %}",
    "data between tags": "{% configuration %}\nname:\n  description: The name.\n{% endconfiguration %}",
    "shortcode": "{{< mermaid >}}\ngraph TD\n{{< /mermaid >}}",
    "table of contents": "* TOC\n{:toc}",
    "component": "<Foo\n  kind=\"big\"\n  items={[\n    'a1',\n  ]}\n  onClick={() => a > b}\n/>",
    "comment": "{/* a comment\n\nof two paragraphs */}",
    "module": "import {\n  Tabs,\n} from '@theme/Tabs';\nexport const meta = {\n  title: 'a',\n};",
    "image": ':::image type="content" source="media/a.png" alt-text="":::',
    "inclusion": "[!INCLUDE [The dog](../includes/a.md)]",
    "button": '> [!div class="nextstepaction"]',
    "options": ":::{note}\n:class: tip\n:name: first-one\n:::",
    "myst comment": "% a comment",
    "properties": "- id:: 64f0\n  collapsed:: true",
    "slide": "---\nlayout: cover\nclass: text-center\n---",
    "formula": "$$\na = b\n- c\n$$",
    "environment": "> \\begin{align}\n> a &= b\n> \\end{align}",
}


@pytest.mark.parametrize("kept", GENERATORS.values(), ids=GENERATORS)
def test_what_a_generator_reads_stays(kept: str, tmp_path: Path) -> None:
    text = f"# The house\n\n{kept}\n\nThe dog.\n"
    assert translated(text, upper, tmp_path) == text.replace("The house", "THE HOUSE").replace(
        "The dog.", "THE DOG."
    )


@pytest.mark.parametrize(
    "front",
    ["---\ntitle: a\n---", "---\ntitle: a\n...", '+++\ntitle = "a"\n+++', '{\n  "title": "a"\n}', "---\n---"],
)
def test_front_matter_stays(front: str, tmp_path: Path) -> None:
    assert translated(f"{front}\n\na dog\n", upper, tmp_path) == f"{front}\n\nA DOG\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("% The house\n% A. Smith\n% 2024\n\na dog\n", "% THE HOUSE\n% A. Smith\n% 2024\n\nA DOG\n"),
        ("[a][h]\n\n[h]: /b 'It\\'s a'\n", "[A][h]\n\n[h]: /b 'IT\\'S A'\n"),
        (
            "| a | b |\n|---|---|\n| a cat \\| a dog | `x\\|y` |\n",
            "| A | B |\n|---|---|\n| A CAT \\| A DOG | `x\\|y` |\n",
        ),
        ("a\\ b for [`c`](u) *d*{.e} ^†^{#\\_f}\n", "A\\ B FOR [`c`](u) *D*{.e} ^†^{#\\_f}\n"),
        ("a ==big *old*== cat, H~2~O\n", "A ==BIG *OLD*== CAT, H~2~O\n"),
        (
            '<Tab label="a dog" icon={x}>\nit *is*\n</Tab>\n',
            '<Tab label="A DOG" icon={x}>\nIT *IS*\n</Tab>\n',
        ),
        ("A <Foo bar={a => b}>dog</Foo> is.\n", "A <Foo bar={a => b}>DOG</Foo> IS.\n"),
        (':::image alt-text="a cat" source="a.png":::\n', ':::image alt-text="A CAT" source="a.png":::\n'),
        ("a cat\n{% if x %}\na dog\n{% endif %}\n", "A CAT\n{% if x %}\nA DOG\n{% endif %}\n"),
    ],
)
def test_texts_beside_what_generators_read_are_translated(source: str, expected: str, tmp_path: Path) -> None:
    assert translated(source, upper, tmp_path) == expected


def test_links_follow_their_headings(tmp_path: Path) -> None:
    text = (
        '[a](#the-house) [b][b] [c](#the-dog-1 "c") `(#the-dog)` [d](#own)\n\n'
        "<a href='#the-dog'>e</a> [f](#other)\n\n"
        "# The *house*!\n## The dog\n## The `dog`\n## The {#own}\n### 12\n\n[b]: #the-house\n"
    )
    written = translated(
        text, lambda texts, _: [Output(text.replace("The", "Die"), []) for text in texts], tmp_path
    )
    expected = (
        text.replace("The", "Die").replace("(#the-house)", "(#die-house)").replace(": #the-", ": #die-")
    )
    assert written == expected.replace("#the-dog-1", "#die-dog-1").replace("'#the-dog", "'#die-dog")


HEADINGS = [
    "Über uns!",
    "What's new",
    "A  b - c",
    "C++ & D_e",
    "Straße — ok",
    "安装",
    "安装",
    "हिन्दी भाषा",
    "It",
    "It",
    "It 1",
    "It",
]


@pytest.mark.parametrize("mark", ['!!! note "A"\n', ""])
def test_names_of_headings_are_those_of_python_markdown_and_github(mark: str, tmp_path: Path) -> None:
    headings = "".join(f"\n## {heading}\n" for heading in HEADINGS)
    if mark:
        names = re.findall(' id="(.*?)"', markdown.markdown(headings, extensions=["toc"]))
    else:  # as github-slugger 2.0.0 gives them
        names = [
            "über-uns", "whats-new", "a--b---c", "c--d_e", "straße--ok", "安装", "安装-1", "हिन्दी-भाषा",
            "it", "it-1", "it-1-1", "it-2",
        ]  # fmt: skip
    links = [f"[a](#{name})\n" for name in names]
    text = mark + "\n".join(links) + headings
    written = translated(text, lambda texts, _: [Output("x") for _ in texts], tmp_path)
    followed = re.findall(r"\(#(.*?)\)", written)
    sign = "_" if mark else "-"
    assert followed == ["x", *(f"x{sign}{number}" for number in range(1, len(names)))]
