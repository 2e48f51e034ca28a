"""The translation of shards: texts, gzipped or not, and Parquet files, which get a column `translation`."""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import override

from heedful.bulk.lines import LineTranslation
from heedful.bulk.shards import BUFFER, Record, ShardJob, ShardWorker
from heedful.data.files import decompressed
from heedful.data.streams import Lines, compressed, write_line
from heedful.decoding.translation import Translation
from heedful.errors import InputError

TRANSLATION, SCORE = "translation", "score"  # columns that are added
_ROW_GROUP = 65_536
_PARQUET = ".parquet"


@dataclass(frozen=True, kw_only=True)
class TranslationJob(ShardJob):
    """What a process needs to translate shards.

    Attributes:
        load: returns how lines are translated and written; with scores, Parquet files get a column of them.
        column: of Parquet files, with the text.
    """

    load: Callable[[], LineTranslation]
    column: str = "text"


class ShardTranslator(ShardWorker):
    """Translates shards; the model is loaded with the first of them."""

    def __init__(self, job: TranslationJob) -> None:
        super().__init__(job)
        self._job = job
        self._num_cut = 0

    @override
    def work(self, name: str) -> Record:
        """Translate a shard, and return its entry of the manifest.

        Raises:
            CorpusError: a text that is damaged or not UTF-8.
            InputError: a Parquet file without the column.
            RunError: other settings than those of the shards before.
        """
        settings, before, tokens_before = self.settings, self.bytes_read, self._tokens
        cut_before = self._num_cut
        source = self._source.fingerprint(name)
        write = self._write_parquet if name.endswith(_PARQUET) else self._write_text
        with (
            self._source.files.open_input_file(self._source.of_file(name)) as file,
            self._output.complete(name) as out,
        ):
            lines = write(f"{self._source.url}/{name}", file, out)
        self.bytes_read = before + source["bytes"]
        return {
            "settings": settings,
            "lines": lines,
            "tokens": self._tokens - tokens_before,
            "num_cut": self._num_cut - cut_before,
            "source": source,
            "output": self._output.fingerprint(name),
        }

    def _write_text(self, name: str, file: pa.NativeFile, out: BinaryIO) -> int:
        """Write the translation of a text, and return the number of its lines."""
        before, number = self.bytes_read, -1
        stream = io.BufferedReader(file, BUFFER)
        with decompressed(stream, name) as plain, compressed(out, name) as target:
            lines = Lines(plain, name)
            for number, translation in enumerate(self._translated(lines)):
                for line in self._loaded.layout.lines(translation, number):
                    write_line(target, line)
                self._count(translation, bytes_read=before + file.tell())
            lines.raise_if_bad()
        return number + 1

    def _write_parquet(self, name: str, file: pa.NativeFile, out: BinaryIO) -> int:
        """Write the rows of a Parquet file with their translations, and return the number of rows."""
        before, number = self.bytes_read, 0
        source = pq.ParquetFile(file)
        has_scores = self._loaded.layout.scores
        added = [pa.field(TRANSLATION, pa.string()), *[pa.field(SCORE, pa.float64())] * has_scores]
        check_column(name, source.schema_arrow, self._job.column, added=added)
        schema = pa.schema([*source.schema_arrow, *added], source.schema_arrow.metadata)
        with pq.ParquetWriter(out, schema) as writer:
            for batch in source.iter_batches(_ROW_GROUP):
                texts = batch.column(self._job.column).to_pylist()
                translations = self._translated((text or "" for text in texts), first_line=number + 1)
                rows: list[tuple[str | None, float]] = []
                for text, translation in zip(texts, translations, strict=True):
                    rows.append((None if text is None else translation.text, translation.score))
                    number += 1
                    share = number / source.metadata.num_rows
                    self._count(translation, bytes_read=before + int(share * file.size()))
                new = [pa.array([row[i] for row in rows], each.type) for i, each in enumerate(added)]
                writer.write_batch(pa.record_batch([*batch.columns, *new], schema=schema))
        return number

    def _translated(self, lines: Iterable[str], *, first_line: int = 1) -> Iterator[Translation]:
        loaded = self._loaded
        return loaded.translator.translate_lines(
            lines, options=loaded.options, chunk_lines=loaded.chunk_lines, first_line=first_line
        )

    def _count(self, translation: Translation, *, bytes_read: int) -> None:
        self._lines += 1
        self._tokens += translation.num_tokens
        self._num_cut += not translation.finished
        if self._lines % self._loaded.chunk_lines == 0:
            self.bytes_read = bytes_read
            self.report(self._lines, self._tokens)

    @cached_property
    def _loaded(self) -> LineTranslation:
        return self._job.load()

    @override
    def _read_settings(self) -> dict[str, str]:
        return self._loaded.settings


def check_column(name: str, schema: pa.Schema, column: str, *, added: Sequence[pa.Field]) -> None:
    """Check that a table has a column of texts, and none of those that are added.

    Raises:
        InputError: naming the column.
    """
    if column not in schema.names:
        names = ", ".join(schema.names)
        raise InputError(f"{name}: has no column {column!r} (it has {names}); choose with --column")
    if schema.names.count(column) > 1:
        raise InputError(f"{name}: has the column {column!r} twice; rename one of them")
    kind = schema.field(column).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise InputError(f"{name}: the column {column!r} is {kind}, not string; choose another with --column")
    taken = [each.name for each in added if each.name in schema.names]
    if taken:
        raise InputError(f"{name}: has a column {taken[0]!r} already; rename it")
