"""Read pairs of sentences from tables: Parquet, and directories of files or of the `datasets` library."""

from collections.abc import Callable, Iterator, Sequence
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
        splits = ", ".join(sorted(info.parent.name for info in path.glob(f"*/{_INFO}")))
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
    match parse_json((directory / _STATE).read_bytes()):
        case {"_data_files": [{"filename": str()}, *_] as files}:
            return [directory / Path(str(file["filename"])).name for file in files]
    raise ValueError(f"{_STATE} names no files")


def _find(name: str, schema: pa.Schema, key: str) -> list[str]:
    """Return the column of a key, or the column and the fields of structs, as `paths_of_key` has them."""
    kinds = [(_type_at(name, schema, path), path) for path in paths_of_key(key)]
    kind, path = next((found for found in kinds if found[0] is not None), (None, []))
    if kind is None:
        inner = _fields(_type_at(name, schema, ["translation"]))
        has = ", ".join(shown(field.name) for field in (inner or [*schema])[:5]) or "none"
        raise CorpusError(f"{name}: no column {key!r} (it has {has}); set data.src_key and data.tgt_key")
    if not is_text(kind):
        raise CorpusError(f"{name}: column {key!r} is of type {kind}, not text; name another one")
    return path


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds texts, each by itself or as one of some categories."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return value in (pa.string(), pa.large_string(), pa.string_view())


def _type_at(name: str, schema: pa.Schema, path: Sequence[str]) -> Any:  # noqa: ANN401
    """Return the type of a column, or of a field in structs; None: there is none."""
    kind, fields = None, list(schema)
    for part in path:
        named = [field.type for field in fields if field.name == part]
        if len(named) > 1:
            raise CorpusError(f"{name}: has the column {part!r} twice; rename one of them")
        kind = named[0] if named else None
        fields = _fields(kind)
    return kind


def _fields(kind: Any) -> list[Any]:  # noqa: ANN401
    return list(kind) if kind is not None and pa.types.is_struct(kind) else []


def _texts(name: str, number: int, batch: pa.RecordBatch, key: str) -> list[str]:
    """Return the texts of a column on one line each; a missing one is empty."""
    first, *inner = _find(name, batch.schema, key)
    column: Any = batch.column(first)
    for part in inner:
        column = column.field(part)
    texts = [text or "" for text in column.to_pylist()]
    for row, text in enumerate(texts, start=number + 1):
        if "\0" in text:
            raise CorpusError(f"{name}: row {row:,}: NUL character in {key!r}; remove it")
    return [text.replace("\n", " ") for text in texts]
