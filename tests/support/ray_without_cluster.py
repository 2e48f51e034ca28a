"""Shards worked on by Ray's API, in this process: nothing but the cluster is missing."""

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Self

import pytest

Row = Mapping[str, Any]


@dataclass
class Rows:
    """A data set of rows, mapped by one actor that is sent as Ray sends it, pickled."""

    rows: Sequence[Row]
    actor: Callable[[Row], Row] = field(default=lambda row: row)

    def map(self, worker: type, *, fn_constructor_args: tuple[Any, ...], **options: Any) -> Self:  # noqa: ANN401
        assert options.keys() == {"compute", "num_cpus", "num_gpus"}
        worker, arguments = pickle.loads(pickle.dumps((worker, fn_constructor_args)))
        return type(self)(self.rows, worker(*arguments))

    def iter_rows(self) -> Iterator[Row]:
        return (pickle.loads(pickle.dumps(self.actor(row))) for row in self.rows)


def use_ray_without_cluster(patch: pytest.MonkeyPatch) -> None:
    """Let `--on ray` work here; skip the test where Ray is not installed."""
    ray = pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    patch.setattr(ray, "is_initialized", lambda: True)
    patch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    patch.setattr(ray.data.DataContext, "get_current", SimpleNamespace)  # Ray's own one warns
    patch.setattr(ray.data, "from_items", lambda rows, *, override_num_blocks: Rows(rows))
