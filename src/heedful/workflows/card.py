"""The model card of a bundle: what it is, from what, how well, and by which command."""

from collections.abc import Mapping

from heedful.config import Config
from heedful.data import ParallelStore
from heedful.workflows.front_matter import front_matter

def model_card(
    config: Config,
    store: ParallelStore,
    *,
    command: str,
    step: int,
    scores: Mapping[str, float],
    signatures: Mapping[str, str],
) -> str:
    """Write the card in Markdown, with the front matter that the hub reads.

    Args:
        config: of the run.
        store: the training data, for its size and fingerprint.
        command: what was typed to train it.
        step: optimiser steps behind these weights.
        scores: of the validation set.
        signatures: of those scores that have one.
    """
    report = store.report
    rows = [f"| {name} | {value:.4g} | {signatures.get(name, '')} |" for name, value in scores.items()]
    title = model_title(config)
    data = config.data.pairs or f"{config.data.src} and {config.data.tgt}"
    return "\n".join(
        [
            front_matter(config, title=title, scores=scores, signatures=signatures),
            f"# {title}",
            "",
            f"An encoder-decoder Transformer trained with heedful for {step:,} steps.",
            "",
            "## Use",
            "",
            "```sh",
            "heedful translate path/to/this/directory < input.txt  # or its name on the hub, user/model",
            "```",
            "",
            "```python",
            "from heedful import Translator",
            "",
            'translator = Translator.load("path/to/this/directory")  # or download_bundle("user/model")',
            'print(translator.translate(["..."]))',
            "```",
            "",
            "## Data",
            "",
            f"- training text: {data}",
            f"- pairs read: {report.num_read:,}; used: {report.num_kept:,}; left out as empty: "
            f"{report.num_empty:,}; as longer than {report.max_length} pieces: {report.num_too_long:,}",
            f"- fingerprint: `{store.path.stem}`",
            "",
            "## Scores on the validation set",
            "",
            "Decoded metrics are of a greedy search over at most "
            f"{config.valid.decode_sentences:,} sentences; they chose this model, so a test set will differ.",
            "",
            "| metric | value | signature |",
            "|---|---|---|",
            *rows,
            "",
            "## Command",
            "",
            "```sh",
            command,
            "```",
            "",
        ]
    )


def model_title(config: Config) -> str:
    """Name a model by its size: layers of the encoder and the decoder, and d_model."""
    model = config.model
    return f"Transformer {model.num_encoder_layers}+{model.num_decoder_layers} x {model.d_model}"
