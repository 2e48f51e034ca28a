"""Whatever a model writes, each placeholder and each tag of the source is in the answer once, unchanged.

Each text is made of a seed: words of several scripts, placeholders of all kinds and elements, with and
without blanks between them. The default number takes some seconds; with `-m slow` and HEEDFUL_FUZZ_CASES in
the environment there are so many.
"""

import asyncio
import html
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from damage import few_or_many
from small_services import RuleTranslator, rule_model
from tiny_bundle import save_memorised

from heedful.documents.markup import TagRules, html_rules, xml_rules
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.models import load_served
from heedful.serving.service import TranslationRequest, TranslationService

HTML, XML = html_rules(), xml_rules()
RULES: dict[str, Callable[[str], TagRules | None]] = {
    "text": lambda _: None,
    "html": lambda _: HTML,
    "xml": lambda _: XML,
}
WORDS = [
    *(
        "the",
        "cat",
        "sleeps",
        "dog",
        "sees",
        ".",
        ".",
        ",",
        "?",
        "A",
        "\u00e9t\u00e9",
        "5",
        "100",
        "(cat)",
        "cat's",
    ),
    *("\u4ef6", "\u6f22\u5b57", "\u30d5\u30a1\u30a4\u30eb", "\u3002"),  # Chinese, Japanese
    *("\ud55c\uad6d\uc5b4", "\u043a\u043e\u0448\u043a\u0430", "\u0642\u0637\u0629", "\u0e41\u0e21\u0e27"),
]
NUMBERED = [
    *("%{}$s", "%{}$d", "%{}$.2f", "%(n{})s", "%(n{})5.1f", "%{{n{}}}", "%n{}%", "%{}"),
    *("{{n{}}}", "{{{}}}", "{{{}:N2}}", "{{{{ n{} }}}}", "{{{{{{n{}}}}}}}", "#{{n{}}}", "${{n{}}}"),
    *("@:(a.n{})", "{{'n{}'}}", "${{a${{n{}}}}}", "{{{{ n{} | default('}}}}') }}}}"),
    *("{{n{}, plural, one {{# dog. A cat}} other {{# dogs}}}}", "{{n{}, number}}", "{{% if n{} %}}"),
    *(
        "$N{}",
        "$t(n{})",
        ":n{}",
        "@n{}",
        "@:n{}",
        "https://a.org/n{}?x=1&y=(z)",
        "www.a.org/n{}",
        "n{}@b.org",
    ),
]
IN_TEXT_ALONE = [
    "<n{}>",
    "<{}/>",
    "<%= n{} %>",
    "%<n{}>s",
    '<a href="n{}">',
    "<a href=n{}>",
    "<a href='n{}>'>",
    "<n{} a/>",
]
PICTURES = ["\u00a9", "\u2192", "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467"]
PLAIN = ["%%", "%d", "%s", "%@", "%zu", "%p", "%-5.2f", "{}", *PICTURES]
NAMES = {"text": ["0", "b"], "html": ["b", "i", "x-foo", "p", "a", "0"], "xml": ["g", "x"]}
POINTS = {
    "text": [],
    "html": ["<br>", "<wbr>", "<!-- a cat -->", "<img src='x'>", "<code>rm x</code>", "&copy;", "&#x1F600;"],
    "xml": ["<c/>", "<!-- a cat -->", "<?do it?>", "<![CDATA[the cat]]>", "&#169;"],
}  # fmt: skip


# Nothing is between these but where no one can tell: a word and `:name`, a number and `%s`, `%n%` and `s`.
NEVER_GLUED = [
    (r"[0-9A-Za-z\u00e9]$", "[:@]|www"),
    (r"^[0-9]+$", "%"),
    (r"^%n[0-9]+%$", "[0-9A-Za-z\u00e9]"),
    (r"^%[0-9]+$", r"[0-9]|\$[Nt]"),
]


@dataclass(frozen=True)
class Text:
    """A text in its format, and what stands in it once."""

    mode: str
    written: str
    once: tuple[str, ...]


def text_of(seed: int) -> Text:
    """Make a text: its end tags are in place, and nothing is glued to a placeholder that makes it another."""
    rng = random.Random(seed)
    mode = rng.choice(list(RULES))
    escape = str if mode == "text" else partial(html.escape, quote=False)
    numbers = iter(range(10, 99))
    kinds = NUMBERED + (IN_TEXT_ALONE if mode == "text" else [])
    pieces: list[str] = []
    once: list[str] = []
    open_names: list[str] = []
    behind = ""  # the last piece of text
    for _ in range(rng.randint(1, 14)):
        what = rng.random()
        if what < 0.12:
            open_names.append(rng.choice(NAMES[mode]))
            has_number = mode != "text" and open_names[-1] != "0"
            pieces.append(f'<{open_names[-1]} id="{next(numbers)}">' if has_number else f"<{open_names[-1]}>")
        elif what < 0.22 and open_names:
            pieces.append(f"</{open_names.pop()}>")
        elif what < 0.27 and POINTS[mode]:
            pieces.append(rng.choice(POINTS[mode]))
        else:
            piece = escape(rng.choice(WORDS if what < 0.6 else PLAIN))
            if what >= 0.7:
                piece = escape(rng.choice(kinds).format(next(numbers)))
                once.append(piece)
            blank = rng.choice(["", " "])
            if any(re.search(before, behind) and re.match(after, piece) for before, after in NEVER_GLUED):
                blank = " and "
            pieces.append(blank + piece)
            behind = piece
    return Text(mode, "".join([*pieces, *(f"</{name}>" for name in reversed(open_names))]), tuple(once))


def faults(text: Text, answer: str) -> list[str]:
    """Return what is lost, changed, doubled or wrongly nested in the answer."""
    found = [each for each in text.once if answer.count(each) != 1]
    before, after = rest(text, text.written), rest(text, answer)
    for each in (*PLAIN, *POINTS[text.mode]):
        if before.count(each) != after.count(each):
            found.append(each)
        before, after = before.replace(each, "\0"), after.replace(each, "\0")
    tag = re.compile(rf"</?(?:{'|'.join(NAMES[text.mode])})(?: id=\"\d+\")?>")
    if Counter(tag.findall(text.written)) != Counter(tag.findall(answer)):
        found.append("tags")
    open_names: list[str] = []
    for each in tag.findall(answer):
        name = each.strip("</>").split()[0]
        if not each.startswith("</"):
            open_names.append(name)
        elif not open_names or open_names.pop() != name:
            found.append(f"nesting at {each}")
    return found


def rest(text: Text, written: str) -> str:
    """Return a text without what stands in it once, and with the characters that its entities stand for."""
    for each in text.once:
        written = written.replace(each, "\0")
    return written if text.mode == "text" else html.unescape(written)


def answers(service: TranslationService, texts: Sequence[Text]) -> list[str]:
    """Return the answers of a service to all texts, many at a time."""

    async def ask() -> list[str]:
        done: dict[int, str] = {}
        for mode, rules in RULES.items():
            indexes = [index for index, text in enumerate(texts) if text.mode == mode]
            for start in range(0, len(indexes), 64):
                some = indexes[start : start + 64]
                request = TranslationRequest(
                    texts=tuple(texts[index].written for index in some), source="en", target="de", rules=rules
                )
                done |= zip(some, (answer.text for answer in await service.translate(request)), strict=True)
        return [done[index] for index in range(len(texts))]

    return asyncio.run(ask())


LIMITS = Limits(characters=10**6, texts=10**6, waiting_characters=10**6, seconds=3600)


def check(service: TranslationService, cases: int) -> None:
    texts = [text_of(seed) for seed in range(cases)]
    wrong = {
        seed: (text.written, answer, found)
        for seed, (text, answer) in enumerate(zip(texts, answers(service, texts), strict=True))
        if (found := faults(text, answer))
    }
    service.close()
    assert not wrong, f"{len(wrong)} of {cases}: {dict(list(wrong.items())[:5])}"


@few_or_many
def test_nothing_is_lost_by_a_model_that_writes_nonsense(cases: int, tmp_path: Path) -> None:
    path = save_memorised(tmp_path / "bundle")
    served = load_served(f"en-de={path}")
    check(TranslationService([served], LIMITS, Metrics()), cases)


@few_or_many
@pytest.mark.parametrize(
    "rule",
    [
        str,
        lambda text: f"{text} {text}",
        lambda text: "".join(reversed(text.split(" "))),
        lambda text: text.upper().replace("%", "% "),
        lambda text: text.replace("{", "").replace("}", ""),
        lambda text: "",
        lambda text: "\u6f22\u5b57" * len(text.split()),
    ],
    ids=["copies", "doubles", "reverses", "changes", "drops braces", "drops all", "other script"],
)
def test_nothing_is_lost_by_a_model_that(rule: Callable[[str], str], cases: int) -> None:
    check(TranslationService([rule_model("a rule", RuleTranslator(rule))], LIMITS, Metrics()), cases)
