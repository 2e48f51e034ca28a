"""The sentences only get shorter: no share of long ones goes up, and no median."""

from collections.abc import Callable

import pytest

from readability import figures, help_texts, messages, num_words, pages, sentences

# Where a change makes a figure better, it is written here anew.
MOST = {
    pages: {"median": 12, "long": 0},
    help_texts: {"median": 11, "long": 0},
    messages: {"median": 10, "long": 0},
}
PAGE = """# A heading is no sentence. Nor are two.

The first sentence has six words. The second, with `code --and=more` and [a link](page.md#here), has ten
or so words! Is 3.5 a word?

- An item without a full stop
- Another item. With two sentences.

| a table | is not counted |
|---|---|

```sh
echo "A block of code is not counted."
```

    echo "Nor is an indented one. Of two lines, or with a line between."

    echo "This is a part of it."

- An item that goes on

  in another paragraph.

<!-- Nor is a comment. -->
The last, of 2017, ends here.
"""


@pytest.mark.parametrize("texts", MOST, ids=lambda texts: texts.__name__)
def test_no_figure_gets_worse(texts: Callable[[], dict[str, str]]) -> None:
    found = figures(texts())
    assert {name: found[name] for name, most in MOST[texts].items() if found[name] > most} == {}


def test_the_sentences_of_a_page_are_its_paragraphs_and_items() -> None:
    assert [(num_words(each), each.split()[0]) for each in sentences(PAGE)] == [
        (6, "The"),
        (12, "The"),
        (4, "Is"),
        (6, "An"),
        (2, "Another"),
        (3, "With"),
        (5, "An"),
        (3, "in"),
        (6, "The"),
    ]


def test_the_figures_are_those_of_the_counted_sentences() -> None:
    other = f"Word{' word' * 30}. Word{' word' * 29}."  # 31 words, and 30
    assert figures({"a": PAGE, "b": other}) == {
        "sentences": 11,
        "median": 6,
        "long": round(1 / 11, 4),
    }
