import os
import sys

import pytest
import torch

from heedful.errors import ConfigError
from heedful.runtime.threads import apply_threads, check_workers, num_threads, set_threads, using_threads


def test_threads_are_set_and_put_back() -> None:
    before = torch.get_num_threads()
    with using_threads(3):
        assert torch.get_num_threads() == 3
        set_threads("threads", 1)
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_threads_that_the_program_sets_in_torch_afterwards_stay() -> None:
    with using_threads(1):
        set_threads("threads", 2)
        torch.set_num_threads(3)
        apply_threads()  # as each model that is loaded does
        assert torch.get_num_threads() == 3


def test_threads_that_were_set_before_torch_was_imported_count_until_torch_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with using_threads(2):
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, "torch")
            set_threads("threads", 1)
        assert torch.get_num_threads() == 2
        assert num_threads() == 1
        apply_threads()
        assert (num_threads(), torch.get_num_threads()) == (1, 1)


@pytest.mark.parametrize("name", ["train.processes", "threads"])
def test_far_more_workers_than_cores_are_refused_before_they_start(name: str) -> None:
    check_workers(name, 64)
    check_workers(name, 4 * (os.cpu_count() or 1))
    before = torch.get_num_threads()
    with pytest.raises(ConfigError, match=rf"{name}=100000: this machine has \d+ cores; give at most \d+"):
        set_threads(name, 100_000)
    assert torch.get_num_threads() == before
