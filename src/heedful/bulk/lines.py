"""The translation of lines: how each is written, and files of them, resumable."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.bulk.manifest import Display, no_display
from heedful.bulk.memories import MemoryLookup, TermReport
from heedful.bulk.resumable import open_resumable
from heedful.data.streams import Lines, Writable, open_output, write_line
from heedful.decoding.options import SearchOptions
from heedful.decoding.texts import chunks, without_line_ends
from heedful.decoding.translation import FindMatch, TextHypothesis, Translation, recalled
from heedful.decoding.translator import Translator
from heedful.errors import InputError
from heedful.runtime.durable import is_replaceable
from heedful.storage.bundle import Bundle
from heedful.storage.description import CONFIG_FILE, file_sha256

if TYPE_CHECKING:
    from heedful.spans.keep import KeepRules

CHUNK_LINES = 1024  # a power of two
# Translates lines with their markup, given what finds a text in a memory.
MarkedLines = Callable[[Sequence[str], FindMatch], list[Translation]]
_HYPOTHESES_AT_ONCE = 65_536  # some 100 MB of them


@dataclass(frozen=True, kw_only=True)
class LineLayout:
    """How translations are written as lines.

    Attributes:
        json: whether each line becomes an object.
        scores: whether the score and a tab precede the text.
        n_best: how many outputs each line has, as `number ||| text ||| score` if there are several.
        terms: whether an object has the terms of the glossary.
        memory: whether an object has the match of the memory.
        only_finished: whether an output that its length limit has cut becomes an empty line.
    """

    json: bool = False
    scores: bool = False
    n_best: int = 1
    terms: bool = False
    memory: bool = False
    only_finished: bool = False

    def lines(self, translation: Translation, number: int) -> Iterator[str]:
        """Yield the output lines of a translation; `number` input lines are before it."""
        if self.only_finished and not translation.finished:
            yield ""
        elif self.json:
            yield self._object(translation)
        elif self.n_best > 1:
            n_best = translation.hypotheses or (translation,)
            yield from (f"{number} ||| {each.text} ||| {each.score:.6f}" for each in n_best)
        elif self.scores:
            yield f"{translation.score:.6f}\t{translation.text}"
        else:
            yield translation.text

    def _object(self, translation: Translation) -> str:
        values = {
            "source": translation.source,
            "text": translation.text,
            "score": translation.score,
            "confidence": translation.confidence and translation.confidence.sentence,
            "hypotheses": [] if translation.match else list(map(_hypothesis, translation.hypotheses)),
        }
        if self.terms:
            values["terms"] = [asdict(each) for each in translation.terms]
        if self.memory:
            values["memory"] = translation.match and asdict(translation.match)
        return json.dumps(values, ensure_ascii=False)


def _hypothesis(hypothesis: TextHypothesis) -> dict[str, object]:
    values = {name: getattr(hypothesis, name) for name in ("text", "score", "log_prob")}
    values |= {"ids": hypothesis.written_ids, "finished": hypothesis.finished}
    values["confidence"] = hypothesis.confidence and asdict(hypothesis.confidence)
    if hypothesis.alignment is not None:
        values["alignment"] = hypothesis.alignment.links
    return values


@dataclass(frozen=True, kw_only=True)
class LineTranslation:
    """How lines are translated and written.

    >>> translation = LineTranslation(translator=translator, options=SearchOptions(beam_size=1))
    >>> with open_input(Path("test.en")) as opened:
    ...     translation.write(Lines(*opened), Path("out.de"), resume=True)

    Attributes:
        translator: the models.
        options: the options of the search.
        layout: how output lines are written.
        lookup: looks lines up in memories; a line with an exact match is not searched.
        terms: counts and reports the terms of the glossary.
        through: translates each text first, into the language that `translator` reads; memories and the
            glossary then match what it returns.
        marked: translates lines with their markup; None: what looks like markup is text.
        keep: what a user keeps in documents; `marked` does so in lines. None: nothing.
        further: what else changes the output, by name; an output is continued only with the same settings.
    """

    translator: Translator
    options: SearchOptions
    layout: LineLayout = field(default_factory=LineLayout)
    lookup: MemoryLookup | None = None
    terms: TermReport | None = None
    through: Translator | None = None
    marked: MarkedLines | None = None
    keep: "KeepRules | None" = None
    further: Mapping[str, object] = field(default_factory=dict)

    @cached_property
    def settings(self) -> dict[str, str]:
        """All settings that change the output, by name, as text."""
        shown = {"json": self.layout.json, "scores": self.layout.scores, **self.further}
        return settings_of(self.translator, self.options, shown)

    @property
    def chunk_lines(self) -> int:
        """How many lines to translate together: a power of two, fewer if each has hundreds of hypotheses."""
        at_once = max(1, _HYPOTHESES_AT_ONCE // self.options.strategy.num_hypotheses(self.options.n_best))
        return min(CHUNK_LINES, 1 << at_once.bit_length() - 1)

    def translations(
        self,
        lines: Iterable[str],
        prefixes: Iterable[str] | None = None,
        *,
        chunk_lines: int | None = None,
        first_line: int = 1,
    ) -> Iterator[Translation]:
        """Yield the translation of each line: from an exact match in the memories, or a new one.

        Args:
            lines: the lines to translate.
            prefixes: for each line, the text that its translations begin with.
            chunk_lines: how many lines to translate together; None: see the property.
            first_line: the number of the first line, for messages and reports.
        """
        found = self._chunks(lines, prefixes, chunk_lines or self.chunk_lines, first_line)
        return found if self.terms is None else self.terms.through(found, first_line=first_line)

    def _chunks(
        self, lines: Iterable[str], prefixes: Iterable[str] | None, chunk_lines: int, first_line: int
    ) -> Iterator[Translation]:
        lookup = self.lookup or MemoryLookup()
        aligned = self.layout.json and self.translator.can_align
        of_lines = chunks(without_line_ends(lines), prefixes, chunk_lines, first_line=first_line)
        for number, texts, prefixes_of_chunk in of_lines:
            search = partial(
                self.translator.translations,
                options=self.options,
                prefixes=prefixes_of_chunk,
                first_line=number,
                aligned=aligned,
            )
            if self.marked is not None:
                found = self.marked(texts, lookup.find)
            elif self.through is not None:
                between = self._between(self.through, texts, number)
                after = recalled([old.text for old in between], lookup.find, search)
                found = [new.through(old) for new, old in zip(after, between, strict=True)]
            else:
                found = recalled(texts, lookup.find, search)
            yield from lookup.added(found)

    def _between(self, first: Translator, texts: Sequence[str], number: int) -> list[Translation]:
        """Return the translations of lines, from this number on, into the language between."""
        return first.translations(texts, first_line=number, aligned=self.layout.json and first.can_align)

    def write(
        self,
        lines: Lines,
        output: Path | None,
        *,
        prefixes: Lines | None = None,
        resume: bool = False,
        line_buffered: bool = False,
        notify: Callable[[str], None] = lambda message: None,
        display: Display = no_display,
    ) -> None:
        """Translate lines into a file; those before a bad line come out.

        Until the file is complete it is NAME.unfinished, beside a manifest, so that another run can go on.

        Args:
            lines: the lines to translate.
            output: the file; None: stdout. A pipe or a device is written directly.
            prefixes: for each line, the text that its translations begin with.
            resume: go on with the output that an earlier run has left.
            line_buffered: translate, write and flush each line at once; no other run can go on.
            notify: called with a line about an earlier run.
            display: shows the progress of a file.

        Raises:
            CorpusError, InputError: a bad line, after those before it; more prefixes than lines, or fewer.
        """
        texts = [iter(lines), *([] if prefixes is None else [prefixes.strictly()])]
        with ExitStack() as stack:
            if line_buffered or output is None or not is_replaceable(output):
                plain = stack.enter_context(open_output(output, at_once=line_buffered))
                for _ in self._write(texts, plain, chunk_lines=1 if line_buffered else None):
                    if line_buffered:
                        plain.flush()
                plain.flush()
            else:
                out = stack.enter_context(open_resumable(output, texts, self.settings, resume=resume))
                if out.notice:
                    notify(out.notice)
                texts, tokens = out.inputs, 0
                show = stack.enter_context(display(lambda: lines.share_read))
                for number, num_tokens in self._write(texts, out, done=out.lines):
                    tokens += num_tokens
                    if number % CHUNK_LINES == 0:
                        out.checkpoint(number)
                        show(number, tokens)
                out.flush()
            lines.raise_if_bad()
            if prefixes is not None and next(texts[1], None) is not None:
                raise InputError(f"{prefixes.name}: has more lines than the input; give one for each line")

    def _write(
        self, texts: Sequence[Iterable[str]], out: Writable, *, chunk_lines: int | None = None, done: int = 0
    ) -> Iterator[tuple[int, int]]:
        """Write the translations of lines after the first `done`; yield their numbers and tokens."""
        translations = self.translations(*texts, chunk_lines=chunk_lines, first_line=done + 1)
        for number, translation in enumerate(translations, start=done + 1):
            for line in self.layout.lines(translation, number - 1):
                write_line(out, line)
            yield number, translation.num_tokens


def settings_of(
    translator: Translator, options: SearchOptions, shown: Mapping[str, object]
) -> dict[str, str]:
    """Return what changes translations besides their input, by name; `shown` is how they are written.

    Threads and the CPU are not among them: in float32 they change no translation.
    """
    bundles = [translator.bundle, *translator.ensemble]
    generator = translator.generator
    computing = {
        "model": " ".join(map(_checksum, bundles)),
        "languages": dict(translator.bundle.config.languages),
        "engine": translator.engine_in_use,
        "precision": translator.precision_in_use,
        "device": translator.device,
        "batch_tokens": generator.batch_tokens,
        "batch_size": generator.batch_size,
    }
    search = {each.name: getattr(options, each.name) for each in fields(options) if each.compare}
    return {name: str(value) for name, value in {**computing, **search, **shown}.items()}


def _checksum(bundle: Bundle) -> str:
    """Return the checksum of a bundle's description, or of the weights if they are in memory alone."""
    if bundle.path is not None and not bundle.weight_versions:
        return file_sha256(bundle.path / CONFIG_FILE)
    digest = hashlib.sha256()
    for weight in bundle.model.parameters():
        digest.update(weight.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()
