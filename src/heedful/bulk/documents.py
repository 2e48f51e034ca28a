"""The translation of documents: one, or all documents of a directory by one load of the model.

    OUTPUT/
      .manifest.json    the documents that are done, as in shards.py
      PATH              the translation of the document DIRECTORY/PATH, or a copy of a file that is none

A directory is worked on as shards are: an output has its name when it is complete, `--resume` translates the
documents that are not done, and several processes may share them. The translations of a document that is not
done are beside its output (resumable.py), so that `--resume` goes on within it.
"""

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from typing_extensions import override

from heedful.bulk.lines import LineTranslation
from heedful.bulk.resumable import Display, is_resumable, no_display, open_resumable, settings_of
from heedful.bulk.shards import (
    Folder,
    Outcome,
    Record,
    ShardJob,
    ShardWorker,
    claimed,
    reason_of,
    work_on_shards,
)
from heedful.data.streams import DISK_FULL, open_output, write_line
from heedful.documents.document_file import read_document, translate_units, with_translator
from heedful.documents.formats import SUPPORTED, TABLE, format_of
from heedful.documents.template import Unit
from heedful.documents.text_files import parse_columns
from heedful.errors import HeedfulError, InputError

_HIDDEN = (".", "~$")  # the second are locks of Word, Excel and PowerPoint
_NAMES_SHOWN = 3
_NOT_UTF8 = "the file's name is not UTF-8; rename it"

# Takes a function that returns the share that is done, and yields one of the texts and characters that are.
TextDisplay = Callable[[Callable[[], float]], AbstractContextManager[Callable[[int, int], None]]]


@dataclass(frozen=True)
class DocumentTranslation:
    """What the translations of documents depend on besides the documents.

    Attributes:
        lines: how lines are translated; texts are by the same models, search and memories.
        column: the names or numbers of the columns of tables that hold text, separated by commas.
        resume: whether to go on with the translations that an earlier run has stored.
        notify: called with lines about the progress.
    """

    lines: LineTranslation
    column: str | None = None
    resume: bool = False
    notify: Callable[[str], None] = lambda message: None

    @cached_property
    def settings(self) -> dict[str, str]:
        """All settings by name, as text."""
        return settings_of(
            self.lines.translator, self.lines.options, {"document": True, **self.lines.further}
        )

    def write(
        self,
        document: Path,
        output: AbstractContextManager[BinaryIO],
        *,
        columns: Sequence[str],
        stored: Path | None,
        display: TextDisplay,
    ) -> int:
        """Translate a document, and return the number of its texts.

        Args:
            document: its path.
            output: yields the stream for the translated document.
            columns: of a table, with text.
            stored: where the translations are until the output is complete, so that another run can go on
                with them; None: nowhere.
            display: shows the progress.

        Raises:
            InputError: the document cannot be read.
        """
        languages = self.lines.translator.bundle.config.languages
        opened = read_document(document, columns=columns, language=languages.tgt, source=languages.src)
        with self._translated(opened.units, stored, display) as translations, output as stream:
            opened.write(translations, stream)
        return len(opened.units)

    @contextmanager
    def _translated(
        self, units: Sequence[Unit], stored: Path | None, display: TextDisplay
    ) -> Iterator[list[str]]:
        lookup = self.lines.lookup
        translate = with_translator(
            self.lines.translator, self.lines.options, known=lookup.translation, add=lookup.add
        )
        translations: list[str] = []
        with ExitStack() as stack:
            out = None
            if stored is not None:
                texts = [repr(each.document.parts) for each in units]
                out = stack.enter_context(
                    open_resumable(stored, [texts], self.settings, resume=self.resume, keep=False)
                )
                if out.notice:
                    self.notify(out.notice.replace("line", "text"))
                translations = [json.loads(line) for line in out.before().splitlines()]
            show = stack.enter_context(display(lambda: len(translations) / max(1, len(units))))
            characters = 0
            for chunk in translate_units(units[len(translations) :], translate):
                translations += chunk
                characters += sum(map(len, chunk))
                if out is not None:
                    for translation, _ in zip(chunk, out.inputs.lines[0], strict=False):
                        write_line(out, json.dumps(translation))
                    out.checkpoint(len(translations))
                show(len(translations), characters)
            yield translations


def translate_document(
    translation: DocumentTranslation, document: Path, output: Path, *, display: Display = no_display
) -> None:
    """Translate a document into a file of the same format; a file is replaced when the new one is complete.

    Raises:
        InputError: the document cannot be read, or the output cannot be written.
    """
    translation.write(
        document,
        open_output(output),
        columns=parse_columns([translation.column or ""]),
        stored=Path(f"{output}.translations") if is_resumable(output) else None,
        display=partial(display, items="texts", size="characters"),
    )


@dataclass(frozen=True)
class FolderFiles:
    """The files of a directory and its subdirectories, by their paths from the directory on, in order.

    Attributes:
        path: of the directory.
        documents: with their sizes in bytes.
        others: files that are no documents.
        left_out: hidden files, links that lead out of the directory, links to directories, and pipes.
        failed: why files cannot be used.
    """

    path: Path
    documents: dict[str, int] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, output: str) -> "FolderFiles":
        """List a directory.

        Args:
            folder: its path.
            output: of the directory of the translations.

        Raises:
            InputError: it has no documents, or the output is it, in it, or around it.
            OSError: a directory cannot be read.
        """
        if output == "-" or "://" in output:
            raise InputError(f"{output}: is no directory of this machine; documents need one")
        files, target = cls(Path(os.path.realpath(folder))), Path(os.path.realpath(output))
        if files.path.is_relative_to(target) or target.is_relative_to(files.path):
            raise InputError(f"{output}: is {folder}, in it, or around it; write to another directory")
        for at, folders, names in os.walk(files.path, onerror=_raise):
            for name in sorted(names):
                files._add(Path(at, name))
            is_left_out = {
                each for each in folders if each.startswith(_HIDDEN) or Path(at, each).is_symlink()
            }
            files.left_out.extend(files._name(Path(at, each)) for each in sorted(is_left_out))
            folders[:] = sorted(set(folders) - is_left_out)
        if not files.documents:
            raise InputError(f"{folder}: has no documents; {SUPPORTED}")
        return files

    def _add(self, file: Path) -> None:
        name, target = self._name(file), Path(os.path.realpath(file))
        if file.name.startswith(_HIDDEN) or not target.is_file() or not target.is_relative_to(self.path):
            self.left_out.append(name)
        elif name.encode(errors="replace") != os.fsencode(name):
            self.failed[name] = f"{file}: {_NOT_UTF8}"
        elif format_of(name) is None:
            self.others.append(name)
        else:
            self.documents[name] = file.stat().st_size

    def _name(self, file: Path) -> str:
        return file.relative_to(self.path).as_posix()


def _raise(error: OSError) -> None:
    raise error


@dataclass(frozen=True, kw_only=True)
class DocumentJob(ShardJob):
    """What is needed to translate the documents of a directory.

    Attributes:
        load: returns how they are translated.
    """

    load: Callable[[], DocumentTranslation]
    items: str = "documents"
    counted: tuple[str, str] = ("texts", "characters")
    manifest: str = ".manifest.json"


class DocumentTranslator(ShardWorker):
    """Translates documents; the model is loaded with the first of them."""

    def __init__(self, job: DocumentJob) -> None:
        super().__init__(job)
        self._job = job
        self._number = 0

    @cached_property
    def _translation(self) -> DocumentTranslation:
        return self._job.load()

    @override
    def _read_settings(self) -> dict[str, str]:
        return self._translation.settings

    @override
    def work(self, name: str) -> Record:
        """Translate a document, and return its entry of the manifest.

        Raises:
            InputError: the document cannot be read.
        """
        self._number += 1
        shown = f"{self._number:,}/{self._job.num_left:,} {name}"
        try:
            record = self._write(name)
        except (HeedfulError, OSError) as error:
            self._translation.notify(f"{shown}: error: {reason_of(error)}")
            raise
        self._translation.notify(f"{shown}: {record['texts']:,} text{'s' * (record['texts'] != 1)}")
        return record

    def _write(self, name: str) -> dict[str, Any]:
        source, before = self._source.fingerprint(name), self.bytes_read
        columns = parse_columns([self._translation.column or ""]) if format_of(name) == TABLE else ()

        @contextmanager
        def display(share: Callable[[], float]) -> Iterator[Callable[[int, int], None]]:
            texts_before, characters_before = self._lines, self._tokens

            def show(texts: int, characters: int) -> None:
                self.bytes_read = before + int(share() * source["bytes"])
                self._lines, self._tokens = texts_before + texts, characters_before + characters
                self.report(self._lines, self._tokens)

            yield show

        texts = self._translation.write(
            Path(self._source.of_file(name)),
            self._output.complete(name),
            columns=columns,
            stored=Path(self._output.beside(name, ".translations")),
            display=display,
        )
        self.bytes_read = before + source["bytes"]
        output = self._output.fingerprint(name)
        return {"settings": self.settings, "texts": texts, "source": source, "output": output}


def translate_folder(
    files: FolderFiles,
    output: str,
    load: Callable[[], DocumentTranslation],
    *,
    resume: bool,
    overwrite: bool,
    notify: Callable[[str], None],
    display: Display = no_display,
) -> "FolderOutcome":
    """Translate the documents of a directory into another one, and copy its other files.

    Args:
        files: of the directory.
        output: the path of the other one.
        load: returns how documents are translated; it is called once, if there is one to translate.
        resume: whether to go on with an output that is there.
        overwrite: whether the output may have other files; those of the same names are replaced.
        notify: called with why files could not be copied.
        display: of the progress.

    Raises:
        RunError: an output that cannot be continued, or must not be overwritten.
        HeedfulError: the model or a memory cannot be used.
    """
    job = DocumentJob(source=str(files.path), output=str(Path(output).absolute()), load=load)
    outcome = work_on_shards(
        DocumentTranslator, job, files.documents, resume=resume, overwrite=overwrite, display=display
    )
    target, failed = Folder.of(job.output), dict(files.failed)
    for name in files.others:
        try:
            with claimed(target, name, timeout=-1):
                if resume and target.has(name):
                    continue
                with (files.path / name).open("rb") as file, target.complete(name) as copy:
                    shutil.copyfileobj(file, copy)
        except (HeedfulError, OSError) as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                raise
            failed[name] = reason_of(error)
    target.delete_leftovers(files.others)
    for reason in failed.values():
        notify(f"error: {reason}")
    return FolderOutcome(**{**vars(outcome), "failed": {**outcome.failed, **failed}}, files=files)


@dataclass(frozen=True, kw_only=True)
class FolderOutcome(Outcome):
    """What was done of a directory.

    Attributes:
        files: of the directory.
    """

    files: FolderFiles

    @override
    def as_dict(self) -> dict[str, Any]:
        """Return what was done, for JSON: numbers, and the names of files without translation."""
        copied = [name for name in self.files.others if name not in self.failed]
        return {**super().as_dict(), "copied": copied, "left_out": self.files.left_out}

    @override
    def __str__(self) -> str:
        """Return what was done in words: numbers, and the first names."""
        names = self.as_dict()
        listed = [_listed(each.replace("_", " "), names[each]) for each in ("copied", "left_out", "failed")]
        return "\n".join([super().__str__(), *filter(None, listed)])


def _listed(what: str, names: Collection[str]) -> str:
    """Return how many names there are, with the first ones; nothing where there are none."""
    first = [*islice(names, _NAMES_SHOWN), *["..."] * (len(names) > _NAMES_SHOWN)]
    return f"{what}: {len(names):,} ({', '.join(first)})" if names else ""
