"""The translation of documents: one, or all documents of a directory by one load of the model.

    OUTPUT/
      .manifest.json    the documents that are done (manifest.py)
      PATH              the translation of the document DIRECTORY/PATH, or a copy of a file that is none

A directory is worked on as shards are: an output has its name when it is complete, `--resume` translates the
documents that are not done, and several processes may share them. The translations of a document that is not
done are beside its output (resumable.py), so that `--resume` goes on within it.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, ClassVar

from typing_extensions import override

from heedful.bulk.folders import why_not_utf_8
from heedful.bulk.lines import LineTranslation, settings_of
from heedful.bulk.manifest import Display, Settings, no_display
from heedful.bulk.memories import MemoryLookup
from heedful.bulk.resumable import open_resumable
from heedful.bulk.shards import Outcome, Report, ShardJob, open_job, reason_of, run_job
from heedful.data.streams import open_output, write_line
from heedful.decoding.translation import Translation
from heedful.documents.document_file import read_document
from heedful.documents.formats import TABLE, format_of, supported
from heedful.documents.text_files import parse_columns
from heedful.errors import HeedfulError, InputError
from heedful.runtime.durable import is_replaceable
from heedful.spans.keep import KeepRules, keeping
from heedful.spans.pipeline import Request, search_of, translate_units

_HIDDEN = (".", "~$")  # the second are locks of Word, Excel and PowerPoint

# Takes a function that returns the share that is done, and yields one of the texts and characters that are.
TextDisplay = Callable[[Callable[[], float]], AbstractContextManager[Callable[[int, int], None]]]


@dataclass(frozen=True, kw_only=True)
class DocumentJob(ShardJob):
    """The translation of documents.

    Attributes:
        load: returns how lines are translated; texts are by the same models, search and memories.
        column: the names or numbers of the columns of tables that hold text, separated by commas.
        resume: whether to go on with the translations of a document that an earlier run has stored.
        notify: called with lines about the progress.
    """

    load: Callable[[], LineTranslation]
    column: str | None = None
    resume: bool = False
    notify: Callable[[str], None] = lambda message: None
    items: ClassVar[str] = "documents"
    counted: ClassVar[tuple[str, str]] = ("texts", "characters")
    manifest: ClassVar[str] = ".manifest.json"

    @cached_property
    def _lines(self) -> LineTranslation:
        return self.load()

    @override
    def read_settings(self) -> Settings:
        lines = self._lines
        return settings_of(lines.translator, lines.options, {"document": True, **lines.further})

    @override
    def write_output(self, name: str, report: Report) -> Mapping[str, int]:
        """Translate a document; see `ShardJob`."""
        return self.translate(
            Path(self.folder.of_file(name)),
            self.target.complete(name),
            column=self.column if format_of(name) == TABLE else None,
            stored=self.target.beside(name, ".translations"),
            display=lambda share: nullcontext(lambda texts, size: report(share(), texts, size)),
        )

    def translate(
        self,
        document: Path,
        output: AbstractContextManager[BinaryIO],
        *,
        column: str | None,
        stored: Path | None,
        display: TextDisplay,
    ) -> dict[str, int]:
        """Translate a document, and return how many texts and characters of text it has.

        `output` yields the stream for the translated document. The translations are in the file `stored`
        until it is complete, so that another run can go on with them; None: nowhere.
        """
        lines, columns = self._lines, parse_columns([column]) if column else []
        read_by, written_by = (lines.through or lines.translator), lines.translator
        languages = read_by.bundle.config.languages, written_by.bundle.config.languages
        lookup = lines.lookup or MemoryLookup()

        search_one = search_of(lines.translator, lines.options, lookup.find, lines.through)

        def search(requests: Sequence[Request]) -> Sequence[Translation]:
            return lookup.added(search_one(requests))

        translations, out = list[str](), None
        with ExitStack() as stack:
            stack.enter_context(keeping((lines.keep or KeepRules()).of(document.name)))
            opened = read_document(
                document, columns=columns, language=languages[1].tgt, source=languages[0].src
            )
            units = opened.units
            ends = [0, *accumulate(len(each.characters) for each in units)]
            if stored is not None:
                texts = [repr(each.source) for each in units]
                out = stack.enter_context(
                    open_resumable(
                        stored, [texts], self.settings, resume=self.resume, keep=False, items="texts"
                    )
                )
                if out.notice:
                    self.notify(out.notice)
                translations = [json.loads(line) for line in out.before().splitlines()]
            before = len(translations)
            show = stack.enter_context(display(lambda: len(translations) / max(1, len(units))))
            for chunk in translate_units(units[len(translations) :], search):
                translations += chunk
                if out is not None:
                    for translation, _ in zip(chunk, out.inputs[0], strict=False):
                        write_line(out, json.dumps(translation))
                    out.checkpoint(len(translations))
                show(len(translations), ends[len(translations)] - ends[before])
            with output as stream:
                opened.write(translations, stream)
        return {"texts": len(units), "characters": ends[-1]}

    def translate_file(self, document: Path, output: Path, display: Display = no_display) -> None:
        """Translate one document into a file of the same format; an old one is replaced at the end."""
        self.translate(
            document,
            open_output(output),
            column=self.column,
            stored=Path(f"{output}.translations") if is_replaceable(output) else None,
            display=partial(display, items="texts", size="characters"),
        )


@dataclass(frozen=True)
class FolderFiles:
    """The files of a directory and its subdirectories, by their paths from the directory on, in order.

    Attributes:
        path: the directory.
        documents: the sizes of the documents in bytes.
        others: files that are no documents.
        left_out: hidden files, links that lead out of the directory, links to directories, and pipes.
        failed: why files cannot be used.
    """

    path: Path
    documents: dict[str, int] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, file: Path) -> None:
        """Add a file to what it belongs to."""
        name, target = file.relative_to(self.path).as_posix(), Path(os.path.realpath(file))
        if file.name.startswith(_HIDDEN) or not target.is_file() or not target.is_relative_to(self.path):
            self.left_out.append(name)
        elif problem := why_not_utf_8(str(file)):
            self.failed[name] = problem
        elif format_of(name) is None:
            self.others.append(name)
        else:
            self.documents[name] = file.stat().st_size


def documents_in(folder: Path) -> FolderFiles:
    """List the files of a directory and its subdirectories.

    Raises:
        InputError: it has no documents.
        OSError: a directory cannot be read.
    """
    files = FolderFiles(Path(os.path.realpath(folder)))
    for at, folders, names in os.walk(files.path, onerror=_raise):
        for name in sorted(names):
            files.add(Path(at, name))
        for name in sorted(folders):
            if name.startswith(_HIDDEN) or Path(at, name).is_symlink():
                files.left_out.append(Path(at, name).relative_to(files.path).as_posix())
                folders.remove(name)
        folders.sort()
    if not files.documents:
        raise InputError(f"{folder}: has no documents; {supported()}")
    return files


def list_documents(folder: Path, output: str) -> FolderFiles:
    """List a directory, before its documents are translated into the directory `output`.

    Raises:
        InputError: it has no documents, or the output is it, in it, or around it.
        OSError: a directory cannot be read.
    """
    files, target = documents_in(folder), Path(os.path.realpath(output))
    problem = f"is {folder}, in it, or around it; write to another directory"
    if is_elsewhere := output == "-" or "://" in output:
        problem = "is no directory of this machine; documents need one"
    if is_elsewhere or files.path.is_relative_to(target) or target.is_relative_to(files.path):
        raise InputError(f"{output}: {problem}")
    return files


def _raise(error: OSError) -> None:
    raise error


def translate_folder(
    job: DocumentJob, files: FolderFiles, *, overwrite: bool, display: Display = no_display
) -> Outcome:
    """Translate the documents of a directory into another one, and copy its other files.

    With `overwrite` the output may have other files; a file of the same name is replaced.
    """
    target, failed = job.target, dict(files.failed)
    state = open_job(job, files.documents, resume=job.resume, overwrite=overwrite)
    outcome = run_job(job, state, notify=job.notify, display=display)
    for name in files.others:
        source = files.path / name
        try:
            with target.locked(name), source.open("rb") as file, target.complete(name) as copy:
                shutil.copyfileobj(file, copy)
        except (HeedfulError, OSError) as error:
            failed[name] = reason_of(error)
    target.delete_leftovers(files.others)
    for reason in failed.values():
        job.notify(f"error: {reason}")
    copied = [name for name in files.others if name not in failed]
    others = {"copied": copied, "left_out": files.left_out}
    return replace(outcome, failed={**outcome.failed, **failed}, others=others)
