"""Translation memories and glossaries beside a translation: texts that are looked up, terms that are met."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.data.streams import Writable, open_output, write_line
from heedful.decoding.translation import MemoryMatch, Translation
from heedful.settings.run import Config
from heedful.text.pair import languages_of_pairs

if TYPE_CHECKING:
    from heedful.documents.memory import TmxWriter, TranslationMemory

_UNKNOWN = ("x-source", "x-target")  # the tags of languages that a model does not name
Notify = Callable[[str], None]


def _say_nothing(message: str) -> None:
    pass


class TermReport:
    """Counts the terms of a glossary in the lines that they apply to, and reports them.

    `num_met` of the `num_terms` terms that applied are in the translation.
    """

    def __init__(self, report: Writable | None = None) -> None:
        """Count from 0; `report` receives a line for each term: line number, whether it is met, term."""
        self._report = report
        self.num_terms = self.num_met = 0

    def through(self, translations: Iterable[Translation], *, first_line: int) -> Iterator[Translation]:
        """Yield translations after their terms are reported; `first_line` is the number of the first."""
        for number, translation in enumerate(translations, start=first_line):
            for term in translation.terms:
                self.num_terms += 1
                self.num_met += term.target is not None
                if self._report is not None:
                    write_line(self._report, f"{number}\t{term.status}\t{term.source}\t{term.target or ''}")
            yield translation


@contextmanager
def open_term_report(path: Path | None, *, notify: Notify = _say_nothing) -> Iterator[TermReport]:
    """Yield a report of terms into a file; at the end, `notify` is called with their numbers."""
    with ExitStack() as stack:
        terms = TermReport(None if path is None else stack.enter_context(open_output(path, keep=False)))
        yield terms
    if terms.num_terms:
        notify(f"glossary: {terms.num_met:,} of {terms.num_terms:,} terms met")


@contextmanager
def open_lookup(
    memories: Sequence[Path],
    config: Config,
    *,
    written: Path | None = None,
    notify: Notify = _say_nothing,
) -> Iterator["MemoryLookup"]:
    """Read memories (TMX files), and open a new one for all texts with their translations.

    An error removes the new one. At the end, `notify` is called with how many texts had matches.
    """
    memory, writer = None, None
    with ExitStack() as stack:
        if memories or written is not None:
            from heedful.documents.memory import TmxWriter, TranslationMemory  # 30 ms of starting otherwise

            src, tgt = languages_of_pairs(config)
            if memories:
                memory = TranslationMemory.load(memories, src=src, tgt=tgt)
            if written is not None:
                file = stack.enter_context(open_output(written, keep=False))
                writer = TmxWriter(file, src=src or _UNKNOWN[0], tgt=tgt or _UNKNOWN[1])
        lookup = MemoryLookup(memory=memory, writer=writer)
        yield lookup
        if writer is not None:
            writer.finish()
    for line in lookup.summary():
        notify(line)


class MemoryLookup:
    """Looks texts up in a memory, counts matches, and writes translations as another one."""

    def __init__(
        self, *, memory: "TranslationMemory | None" = None, writer: "TmxWriter | None" = None
    ) -> None:
        """Look up in `memory`, and write to `writer`, if they are given."""
        self._memory, self._writer = memory, writer
        self._num_texts = self._num_found = 0

    def find(self, text: str) -> MemoryMatch | None:
        """Return the unit of the memory for a text; None: there is none."""
        if self._memory is None or not text.strip():
            return None
        match = self._memory.exact(text)
        self._num_texts += 1
        self._num_found += match is not None
        return match

    def added(self, translations: Sequence[Translation]) -> Sequence[Translation]:
        """Return translations after they are written into the new memory, if there is one."""
        if self._writer is not None:
            for translation in translations:
                self._writer.write(translation.source, translation.text)
        return translations

    def summary(self) -> list[str]:
        """Return lines that say how many texts had matches, and what could not be written."""
        lines = []
        if self._memory is not None:
            num_none = self._num_texts - self._num_found
            lines.append(
                f"memory: {self._num_found:,} exact, {num_none:,} none, of {len(self._memory):,} units"
            )
        if self._writer is not None and (num_removed := self._writer.num_removed):
            lines.append(f"--to-tmx: left out {num_removed:,} control characters, which XML cannot hold")
        return lines
