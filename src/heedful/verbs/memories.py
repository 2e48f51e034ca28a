"""Translation memories of `heedful translate`, and reports beside a translation."""

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.data.streams import Writable, open_output, write_line
from heedful.errors import MissingExtraError, install_hint

if TYPE_CHECKING:
    from heedful.decoding.translation import MemoryMatch, Translation
    from heedful.documents.memory import TmxWriter, TranslationMemory
    from heedful.serving.languages import Pair
    from heedful.settings.run import Config

_UNKNOWN = ("x-source", "x-target")  # the tags of languages that a model does not name
TranslateLines = Callable[[Iterable[str]], "Iterable[Translation]"]


def pair_of(config: "Config") -> "Pair | None":
    """Return the pair that a bundle names, else that of the training files' names: train.en and train.de.

    Raises:
        MissingExtraError: langcodes is not installed.
    """
    from heedful.serving.languages import Pair, language_code

    try:
        codes = [
            None if name is None else language_code(name)
            for name in (config.languages.src, config.languages.tgt)
        ]
        endings = [None if name is None else _ending(name) for name in config.data.first_text]
    except ModuleNotFoundError:
        raise MissingExtraError(f"tags of languages need langcodes: {install_hint('memories')}") from None
    return next((Pair(src, tgt) for src, tgt in (codes, endings) if src and tgt and src != tgt), None)


def _ending(name: str) -> str | None:
    from heedful.data.files import plain_name
    from heedful.serving.languages import language_code

    ending = plain_name(Path(name)).suffix[1:]
    return language_code(ending) if len(ending) <= 3 else None


@contextmanager
def glossary_report(path: Path | None) -> "Iterator[Callable[[Translation, int], Translation]]":
    """Yield a function that writes the terms of a line, given its number; their sum is printed at the end."""
    num_terms = num_met = 0
    with ExitStack() as stack:
        output = None if path is None else stack.enter_context(open_output(path, keep=False))

        def add(translation: "Translation", number: int) -> "Translation":
            nonlocal num_terms, num_met
            for term in translation.terms:
                num_terms, num_met = num_terms + 1, num_met + (term.target is not None)
                status = "missed" if term.target is None else "met"
                if output is not None:
                    write_line(output, f"{number}\t{status}\t{term.source}\t{term.target or ''}")
            return translation

        yield add
    if num_terms:
        print(f"glossary: {num_met:,} of {num_terms:,} terms met", file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class MemoryFiles:
    """The memories of a task, and what is written about them.

    Attributes:
        memories: TMX files that are read.
        report: the matches of each text.
        written: a TMX file of all texts with their translations.
    """

    memories: Sequence[Path]
    report: Path | None
    written: Path | None

    @property
    def are_asked(self) -> bool:
        """Whether there is anything to read or write."""
        return bool(self.memories) or self.report is not None or self.written is not None

    @contextmanager
    def through(
        self, lines: Iterable[str], translate: TranslateLines, config: "Config"
    ) -> "Iterator[Iterable[Translation]]":
        """Yield the translations of lines: those of the memories, else what `translate` returns."""
        if not self.are_asked:
            yield translate(lines)
            return
        with self.opened(config) as lookup:
            yield lookup.translate(lines, translate)

    def check(self, *, inputs: Sequence[Path | None], models: Sequence[Path], output: Path | None) -> None:
        """Refuse files that cannot be written, or in the place of others.

        Raises:
            BadParameter: a report without a memory.
            InputError: naming the file.
        """
        from heedful.runs.output_checks import check_output

        if not self.are_asked:
            return
        if self.report is not None and not self.memories:
            raise typer.BadParameter("--memory-report needs --memory")
        for each in filter(None, (self.report, self.written)):
            others = [self.report if each is self.written else None, output]
            check_output(each, inputs=[*inputs, *self.memories], models=models)
            names = [str(other.absolute()) for other in others if other is not None]
            if any(
                str(each.absolute()) == name or str(each.absolute()).startswith(f"{name}.") for name in names
            ):
                raise typer.BadParameter(f"{each}: is another output's place; give it another name")

    @contextmanager
    def opened(self, config: "Config") -> "Iterator[MemoryLookup]":
        """Read the memories and open what is written; an error removes it. The sums are printed at the end.

        Raises:
            InputError: a memory that cannot be read.
            MissingExtraError: what is needed for it is not installed.
        """
        from heedful.documents.memory import TmxWriter, TranslationMemory

        memory: TranslationMemory | None = None
        writer: TmxWriter | None = None
        pair = pair_of(config) if self.memories or self.written is not None else None
        if self.memories:
            src, tgt = (pair.src, pair.tgt) if pair else (None, None)
            memory = TranslationMemory.load(self.memories, src=src, tgt=tgt)
        with ExitStack() as stack:
            report = (
                None if self.report is None else stack.enter_context(open_output(self.report, keep=False))
            )
            if self.written is not None:
                src, tgt = (pair.src, pair.tgt) if pair else _UNKNOWN
                file = stack.enter_context(open_output(self.written, keep=False))
                writer = TmxWriter(file, src=src, tgt=tgt)
            lookup = MemoryLookup(
                memory=memory, writer=writer, report=None if report is None else _lines_to(report)
            )
            yield lookup
            if writer is not None:
                writer.finish()
        lookup.print_sums()


def _lines_to(stream: Writable) -> Callable[[str], None]:
    return lambda line: write_line(stream, line)


class MemoryLookup:
    """Looks texts up in a memory, counts and reports matches, and writes translations as another one."""

    def __init__(
        self,
        *,
        memory: "TranslationMemory | None" = None,
        writer: "TmxWriter | None" = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        """Use what there is.

        Args:
            memory: where texts are looked up.
            writer: of a memory with all translations.
            report: receives a line for each text; then fuzzy matches are looked up too.
        """
        self._memory, self._writer, self._report = memory, writer, report
        self._num_texts = self._num_exact = self._num_fuzzy = 0

    def find(self, text: str, *, number: int | None = None) -> "MemoryMatch | None":
        """Return the unit of the memory for a text: an exact match, or for the report a fuzzy one.

        Args:
            text: to look up.
            number: of its line, for the report; None: of the texts that were looked up.
        """
        if self._memory is None or not text.strip():
            return None
        match = self._memory.exact(text) if self._report is None else self._memory.match(text)
        is_exact = match is not None and match.is_exact
        self._num_texts += 1
        self._num_exact += is_exact
        self._num_fuzzy += match is not None and not is_exact
        if self._report is not None:
            kind = "none" if match is None else "exact" if is_exact else "fuzzy"
            unit = () if match is None else (f"{match.share:.3f}", match.source, match.target)
            self._report("\t".join([str(number or self._num_texts), kind, *unit]))
        return match

    def translation(self, text: str) -> str | None:
        """Return the translation of an exact match; None: there is none."""
        match = self.find(text)
        return match.target if match is not None and match.is_exact else None

    def add(self, source: str, target: str) -> None:
        """Write a translation into the new memory, if there is one."""
        if self._writer is not None:
            self._writer.write(source, target)

    def translate(self, lines: Iterable[str], translate: TranslateLines) -> "Iterator[Translation]":
        """Yield the translation of each line: that of an exact match, else what `translate` yields."""
        from heedful.decoding.texts import without_line_ends
        from heedful.decoding.translation import Translation

        waiting: deque[tuple[str, MemoryMatch | None]] = deque()

        def left() -> Iterator[str]:
            for number, line in enumerate(without_line_ends(lines), 1):
                match = self.find(line, number=number)
                waiting.append((line, match))
                yield "" if match is not None and match.is_exact else line  # an empty line costs nothing

        for searched in translate(left()):
            line, match = waiting.popleft()
            translation = searched
            if match is not None and match.is_exact:
                translation = Translation(line, match.target, 0.0, ())
            self.add(line, translation.text)
            yield replace(translation, match=match)

    def print_sums(self) -> None:
        """Print how many texts had matches, and what could not be written."""
        if self._memory is not None:
            parts = [f"{self._num_exact:,} exact"]
            parts += [f"{self._num_fuzzy:,} fuzzy"] if self._report is not None else []
            parts.append(f"{self._num_texts - self._num_exact - self._num_fuzzy:,} none")
            print(f"memory: {', '.join(parts)}, of {len(self._memory):,} units", file=sys.stderr)
        if self._writer is not None and self._writer.num_removed:
            print(
                f"--to-tmx: left out {self._writer.num_removed:,} control characters, which XML cannot hold",
                file=sys.stderr,
            )
