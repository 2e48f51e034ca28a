"""What oneDNN says of its prepared products, in a process of its own: it reads its setting once."""

import os
import subprocess
import sys

from machine_class import skip_here

SHAPES = 60  # more than are kept
PROGRAM = f"""
import torch
from heedful.training.memory import limit_onednn_cache

limit_onednn_cache()
weight = torch.zeros(64, 64, dtype=torch.bfloat16)
for _ in range(2):
    for rows in range(8, 8 + 8 * {SHAPES}, 8):
        torch.zeros(rows, 64, dtype=torch.bfloat16) @ weight
"""


def num_prepared(**settings: str) -> int:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONEDNN_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**environment, "ONEDNN_VERBOSE": "profile_create", **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.count("create:cache_miss,cpu,matmul")


def test_few_prepared_products_are_kept_unless_the_user_says_how_many() -> None:
    with_as_many_as_shapes = num_prepared(ONEDNN_PRIMITIVE_CACHE_CAPACITY="1000")
    if not with_as_many_as_shapes:
        skip_here("oneDNN in bfloat16")
    assert with_as_many_as_shapes == SHAPES
    assert num_prepared() == 2 * SHAPES
