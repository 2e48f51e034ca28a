"""Average several checkpoints of a run (6.1)."""

from dataclasses import replace
from pathlib import Path

from heedful.errors import CheckpointError, RunError
from heedful.ops.lora import add_adapters, without_adapters
from heedful.storage.bundle import load_bundle
from heedful.storage.model_files import load_weights, save_bundle
from heedful.training.averaging import average_weights
from heedful.training.checkpoint import is_complete, list_checkpoints
from heedful.workflows.card import front_matter
from heedful.workflows.run_directory import CHECKPOINTS, CONFIG


def average(run: Path, output: Path, *, last: int = 5) -> list[Path]:
    """Write a bundle with the mean weights of the newest checkpoints; return those checkpoints.

    Args:
        run: a run directory with a bundle, for everything except the weights.
        output: the bundle to write.
        last: how many of the newest checkpoints; the paper uses 5 for base and 20 for big.

    Raises:
        RunError: the output exists, or there is no run.
        CheckpointError: there are fewer checkpoints, or one is damaged.
        BundleError: the run has no bundle.
    """
    if output.exists():
        raise RunError(f"{output}: already exists; give another --output")
    if not (run / CONFIG).is_file():
        problem = "no run directory" if run.exists() else "no such directory"
        raise RunError(f"{run}: {problem}; give a directory that `heedful train` made")
    checkpoints = list_checkpoints(run / CHECKPOINTS)[-last:]
    if not checkpoints:
        raise CheckpointError(f"{run}: has no checkpoints; wait for the first, or give another run")
    if len(checkpoints) < last:
        raise CheckpointError(f"{run}: has {len(checkpoints)} checkpoints; give --last {len(checkpoints)}")
    for path in checkpoints:
        if not is_complete(path):
            raise CheckpointError(f"{path}: truncated or altered (checksum differs); remove it, try again")
    bundle = load_bundle(run)
    if bundle.config.lora.rank:
        add_adapters(bundle.model, bundle.config.lora)
    load_weights(bundle.model, average_weights(checkpoints), output)
    bundle = replace(bundle, network=without_adapters(bundle.model), scores={})
    steps = ", ".join(path.name.removeprefix("step-") for path in checkpoints)
    title = f"The mean of {last} checkpoints"
    card = (
        front_matter(bundle.config, title=title)
        + f"# {title}\n\nOf the run `{run}`, at steps {steps}. Not scored.\n"
    )
    save_bundle(bundle, output, card=card)
    return checkpoints
