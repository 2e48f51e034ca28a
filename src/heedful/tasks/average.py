"""Average the newest checkpoints of a run into a bundle (6.1)."""

from pathlib import Path

from heedful.decoding.aligner import ALIGNER_FILE
from heedful.errors import CheckpointError, RunError
from heedful.runtime.durable import new_directory
from heedful.storage.bundle import save_bundle
from heedful.storage.description import bundle_file_names, resolve_bundle, runs_inside
from heedful.tasks.card import front_matter
from heedful.tasks.checkpoints import bundle_of_checkpoints
from heedful.tasks.directory import CHECKPOINTS, CONFIG
from heedful.tasks.options import Notify, say_nothing
from heedful.training.checkpoint import list_checkpoints


def average(run: Path, output: Path, *, last: int = 5, notify: Notify = say_nothing) -> list[Path]:
    """Write the bundle, with all but the weights from a bundle of the run; return the checkpoints.

    The paper averages 5 checkpoints for base, and 20 for big. An aligner belongs to the embeddings that it
    was learned over, so the average has none. `notify` receives a sentence for the user if the bundle of the
    run has an aligner.
    """
    if not (run / CONFIG).is_file():
        what = "no run directory" if run.exists() else "no such directory"
        raise RunError(f"{run}: {what}; {runs_inside(run) or 'give a directory that `heedful train` made'}")
    with new_directory(output) as directory:
        checkpoints = list_checkpoints(run / CHECKPOINTS)[-last:]
        if (number := len(checkpoints)) < last:
            remedy = f"give --last {number}" if number else "wait for the first, or give another run"
            raise CheckpointError(f"{run}: has {number or 'no'} checkpoints; {remedy}")
        bundle = bundle_of_checkpoints(run, checkpoints)
        steps = ", ".join(path.name.removeprefix("step-") for path in checkpoints)
        title = f"The mean of {last} checkpoints"
        card = (
            front_matter(bundle.config, title=title)
            + f"# {title}\n\nOf the run `{run}`, at steps {steps}. Not scored.\n"
        )
        save_bundle(bundle, directory, card=card)
    if ALIGNER_FILE in bundle_file_names(resolve_bundle(run)):
        notify(
            f"the aligner of {resolve_bundle(run)} was not averaged, because the embeddings differ; "
            "learn one with heedful align --learn"
        )
    return checkpoints
