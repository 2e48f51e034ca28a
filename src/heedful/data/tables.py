"""Read pairs of sentences from tables: Parquet, and directories of files or of the `datasets` library."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from heedful.data.json_pairs import paths_of_key
from heedful.errors import CorpusError
from heedful.settings.parsing import parse_json, shown

_ROWS = 8192  # that are read at once
_INFO, _STATE, _SPLITS = "dataset_info.json", "state.json", "dataset_dict.json"  # of the datasets library


def inner_files(path: Path, holds_pairs: Callable[[Path], bool]) -> list[Path]:
    """Return the Parquet files of a directory, or else its files of pairs; none if it is one table."""
    if not path.is_dir() or (path / _STATE).exists():
        return []
    if (path / _SPLITS).exists():
        splits = ", ".join(sorted(each.name for each in path.iterdir() if (each / _INFO).exists()))
        raise CorpusError(f"{path}: has several splits ({splits}); give the directory of one of them")
    inner = sorted(path.glob("*.parquet")) or sorted(filter(holds_pairs, path.iterdir()))
    if not inner:
        raise CorpusError(
            f"{path}: neither Parquet files nor a directory of Dataset.save_to_disk, nor files of pairs such "
            "as .tsv; give one of these"
        )
    return inner


def table_chunks(
    path: Path, keys: tuple[str, str], report: Callable[[float], None] | None
) -> Iterator[tuple[list[str], list[str]]]:
    """Read the pairs of a table in chunks, in order; CorpusError when a faulty part is reached."""
    name, number = str(path), 0
    try:
        for batch, share in _batches_of_dataset(path) if path.is_dir() else _batches_of_parquet(path, keys):
            src, tgt = (_texts(name, number, batch, key) for key in keys)
            yield src, tgt
            number += batch.num_rows
            if report:
                report(share)
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        problem = f"cannot be read as a table ({reason}); write it again"
        if isinstance(error, FileNotFoundError) and path.suffix == ".parquet":
            problem = "no such file; check the path"
        raise CorpusError(f"{name}: {problem}") from error
    if number == 0:
        raise CorpusError(f"{name}: the table has no rows; give one with text")


def _batches_of_dataset(path: Path) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Yield record batches, and the fraction that was read with each."""
    files = _dataset_files(path)
    for i, file in enumerate(files, start=1):
        with pa.OSFile(str(file)) as source, pa.ipc.open_stream(source) as reader:
            for batch in reader:
                for start in range(0, batch.num_rows, _ROWS):
                    yield batch.slice(start, _ROWS), i / len(files)


def _batches_of_parquet(path: Path, keys: tuple[str, str]) -> Iterator[tuple[pa.RecordBatch, float]]:
    """Yield record batches with at least the named columns, and the fraction that was read with each."""
    with pq.ParquetFile(path) as table:
        columns = [".".join(_find(str(path), table.schema_arrow, key)) for key in keys]
        read = 0
        for batch in table.iter_batches(_ROWS, columns=columns):
            read += batch.num_rows
            yield batch, read / table.metadata.num_rows


def _dataset_files(directory: Path) -> list[Path]:
    """Return the Arrow files of a directory that `Dataset.save_to_disk` wrote."""
    state = parse_json((directory / _STATE).read_bytes())
    listed = state.get("_data_files") if isinstance(state, dict) else None
    names = [each.get("filename") if isinstance(each, dict) else None for each in listed or ()]
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{_STATE} names no files")
    return [directory / Path(str(name)).name for name in names]


def _find(name: str, schema: pa.Schema, key: str) -> list[str]:
    """Return the column of a key, or the column and the fields of structs, as `paths_of_key` has them."""
    for path in paths_of_key(key):
        kind, fields = None, list(schema)
        for part in path:
            named = [field.type for field in fields if field.name == part]
            if len(named) > 1:
                raise CorpusError(f"{name}: has the column {part!r} twice; rename one of them")
            kind = named[0] if named else None
            fields = list(kind) if kind is not None and pa.types.is_struct(kind) else []
        if kind is not None:
            break
    else:
        inner = {field.name: field.type for field in schema}.get("translation", pa.null())
        names = [field.name for field in inner] if pa.types.is_struct(inner) else schema.names
        has = ", ".join(map(shown, names[:5])) or "none"
        raise CorpusError(f"{name}: no column {key!r} (it has {has}); set data.src_key and data.tgt_key")
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if value not in (pa.string(), pa.large_string(), pa.string_view()):
        raise CorpusError(f"{name}: column {key!r} is of type {kind}, not text; name another one")
    return path


def _texts(name: str, number: int, batch: pa.RecordBatch, key: str) -> list[str]:
    """Return the texts of a column on one line each; a missing one is empty."""
    first, *inner = _find(name, batch.schema, key)
    column: Any = batch.column(first)
    for part in inner:
        column = column.field(part)
    texts: list[str] = column.to_pylist()
    for row, text in enumerate(texts):
        if text is None:
            texts[row] = ""
        elif "\0" in text:
            raise CorpusError(f"{name}: row {number + row + 1:,}: NUL character in {key!r}; remove it")
        elif "\n" in text:
            texts[row] = " ".join(text.split("\n"))
    return texts
