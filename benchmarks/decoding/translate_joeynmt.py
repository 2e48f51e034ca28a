"""JoeyNMT's own search, greedy and beam, on the converted model."""

import json
import logging
from types import SimpleNamespace

import torch
from joeynmt.batch import Batch
from joeynmt.model import Model, build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary
from measuring import Ids, Task, Translate, in_batches, measure, parse_task


def load(task: Task) -> Model:
    """Its model with the weights that `conversion.py` wrote under its names."""
    directory = task.material / "joeynmt"
    settings = json.loads((directory / "model.json").read_text(encoding="utf-8"))
    vocabulary = _vocabulary(task)
    model = build_model(settings["model"], vocabulary, vocabulary)
    found = model.load_state_dict(torch.load(directory / "model.pt", weights_only=True), strict=False)
    if found.unexpected_keys or any(not name.endswith(".pe.pe") for name in found.missing_keys):
        raise SystemExit(f"the weights do not fit: {found}")
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = settings["norm_eps"]  # which its configuration cannot say
    return model.eval()


def _vocabulary(task: Task) -> Vocabulary:
    """Words that nobody reads, as many as there are ids; then the special ids, which it wants in front."""
    special = SimpleNamespace(
        unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", sep_token=None, lang_tags=[],
        unk_id=0, pad_id=1, bos_id=2, eos_id=3, sep_id=None,
    )  # fmt: skip
    vocabulary = Vocabulary([str(i) for i in range(task.vocab_size - 4)], special)
    vocabulary.unk_index, vocabulary.pad_index = task.unk_id, task.pad_id
    vocabulary.bos_index, vocabulary.eos_index = task.start_id, task.eos_id
    return vocabulary


def prepare(task: Task) -> Translate:
    """The search, batch by batch."""
    if task.precision != "float32":
        raise SystemExit("JoeyNMT 2.3 switches reduced precision off on a CPU")
    logging.disable(logging.INFO)
    torch.set_num_threads(task.threads)
    model = load(task)

    def translate(sources: list[Ids]) -> list[Ids]:
        batch = Batch(
            src=torch.tensor(task.padded(sources)),
            src_length=torch.tensor([len(ids) for ids in sources]),
            src_prompt_mask=None,
            trg=None,
            trg_prompt_mask=None,
            indices=torch.arange(len(sources)),
            device=torch.device("cpu"),
            pad_index=task.pad_id,
            eos_index=task.eos_id,
            is_train=False,
        )
        found, _, _ = search(
            model,
            batch,
            max_output_length=task.max_length(sources),
            beam_size=task.beam,
            beam_alpha=1.0,
            min_output_length=task.exact_length,
        )
        return [task.until_end(ids) for ids in found.tolist()]

    return in_batches(task, translate)


if __name__ == "__main__":
    asked = parse_task(__doc__)
    measure(asked, prepare(asked))
