"""From files of parallel text to batches of ids: corpus, store, sampler, batches."""

from heedful.data.batch_source import BatchSource
from heedful.data.batches import Batch, collate
from heedful.data.corpus import (
    ParallelText,
    check_parallel,
    overlap,
    read_lines,
    read_pairs,
    read_parallel,
    shared_pairs,
)
from heedful.data.sampler import plan_epoch
from heedful.data.store import CorpusReport, ParallelStore, build_store

__all__ = [
    "Batch",
    "BatchSource",
    "CorpusReport",
    "ParallelStore",
    "ParallelText",
    "build_store",
    "check_parallel",
    "collate",
    "overlap",
    "plan_epoch",
    "read_lines",
    "read_pairs",
    "read_parallel",
    "shared_pairs",
]
