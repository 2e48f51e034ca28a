"""The translation of shards: texts, gzipped or not, and Parquet files, which get a column `translation`."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BufferedReader
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import override

from heedful.bulk.lines import LineTranslation
from heedful.bulk.manifest import Settings
from heedful.bulk.shards import Report, ShardJob
from heedful.data.files import decompressed
from heedful.data.streams import Lines, compressed, write_line
from heedful.data.tables import is_text
from heedful.decoding.translation import Translation
from heedful.errors import InputError
from heedful.storage.weights_file import one_line

TRANSLATION, SCORE = "translation", "score"  # columns that are added
_ROW_GROUP = 65_536
_PARQUET = ".parquet"


@dataclass(frozen=True, kw_only=True)
class TextShards(ShardJob):
    """The translation of shards.

    With scores, Parquet files get a column of them; `column` is their column with the text.
    """

    load: Callable[[], LineTranslation]
    column: str = "text"

    @cached_property
    def _lines(self) -> LineTranslation:
        return self.load()

    @override
    def read_settings(self) -> Settings:
        return {**self._lines.settings, "column": self.column}

    @override
    def write_output(self, name: str, report: Report) -> Mapping[str, int]:
        """Translate a shard; see `ShardJob`."""
        lines = tokens = num_cut = 0
        translated = self._parquet if name.endswith(_PARQUET) else self._text
        source = f"{self.folder.url}/{name}"
        try:
            with self.folder.open(name) as file, self.target.complete(name) as out:
                size = file.seek(0, os.SEEK_END)
                file.seek(0)
                for translation, share in translated(source, file, size, out):
                    lines += 1
                    tokens += translation.num_tokens
                    num_cut += not translation.finished
                    if lines % self._lines.chunk_lines == 0:
                        report(share, lines, tokens)
        except pa.ArrowException as error:
            raise InputError(f"{source}: not a Parquet file, or damaged ({one_line(error)})") from error
        return {"lines": lines, "tokens": tokens, "num_cut": num_cut}

    def _text(
        self, name: str, file: BufferedReader, size: int, out: BinaryIO
    ) -> Iterator[tuple[Translation, float]]:
        """Yield the translations of a text that are written, and how much of it is read."""
        with decompressed(file, name) as plain, compressed(out, name) as target:
            lines = Lines(plain, name)
            for number, translation in enumerate(self._lines.translations(lines)):
                for line in self._lines.layout.lines(translation, number):
                    write_line(target, line)
                yield translation, file.tell() / size
            lines.raise_if_bad()

    def _parquet(
        self, name: str, file: BufferedReader, size: int, out: BinaryIO
    ) -> Iterator[tuple[Translation, float]]:
        """Yield the translations of a Parquet file, and how much of it is translated; write them after it."""
        number, source = 0, pq.ParquetFile(file)
        added = [pa.field(TRANSLATION, pa.string())]
        added += [pa.field(SCORE, pa.float64())] * self._lines.layout.scores
        check_column(name, source.schema_arrow, self.column, added=added)
        schema = pa.schema([*source.schema_arrow, *added], source.schema_arrow.metadata)
        with pq.ParquetWriter(out, schema) as writer:
            for batch in source.iter_batches(_ROW_GROUP):
                texts, rows = batch.column(self.column).to_pylist(), list[tuple[str | None, float]]()
                translations = self._lines.translations((text or "" for text in texts), first_line=number + 1)
                for text, translation in zip(texts, translations, strict=True):
                    rows.append((None if text is None else translation.text, translation.score))
                    number += 1
                    yield translation, number / source.metadata.num_rows
                new = [pa.array([row[i] for row in rows], each.type) for i, each in enumerate(added)]
                writer.write_batch(pa.record_batch([*batch.columns, *new], schema=schema))


def check_column(name: str, schema: pa.Schema, column: str, *, added: Sequence[pa.Field]) -> None:
    """Check that a table has one column of texts of this name, and none of the columns that are added."""
    problem, columns = None, schema.names
    kinds = [each.type for each in schema if each.name == column]
    if not kinds:
        problem = f"has no column {column!r} (it has {', '.join(columns)}); choose with --column"
    elif len(kinds) > 1:
        problem = f"has the column {column!r} twice; rename one of them"
    elif not is_text(kinds[0]):
        problem = f"the column {column!r} is {kinds[0]}, not string; choose another with --column"
    elif used := [each.name for each in added if each.name in columns]:
        problem = f"has a column {used[0]!r} already; rename it"
    if problem:
        raise InputError(f"{name}: {problem}")
