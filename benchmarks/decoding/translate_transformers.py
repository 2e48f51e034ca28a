"""MarianMTModel of transformers on the exported directory, by `generate`."""

import torch
from measuring import Ids, Task, Translate, in_batches, measure, parse_task
from transformers import MarianMTModel


def prepare(task: Task) -> Translate:
    """The model, batch by batch."""
    torch.set_num_threads(task.threads)
    model = MarianMTModel.from_pretrained(str(task.material / "marian")).eval()
    if task.precision == "bf16":
        model = model.to(torch.bfloat16)

    @torch.inference_mode()
    def translate(sources: list[Ids]) -> list[Ids]:
        src = torch.tensor(task.padded(sources))
        found = model.generate(
            input_ids=src,
            attention_mask=(src != task.pad_id).long(),
            num_beams=task.beam,
            length_penalty=1.0,
            early_stopping=True,
            do_sample=False,
            min_new_tokens=task.exact_length or None,
            max_new_tokens=task.max_length(sources),
        )
        return [task.until_end(ids[1:]) for ids in found.tolist()]  # without the start token

    return in_batches(task, translate)


if __name__ == "__main__":
    asked = parse_task(__doc__)
    measure(asked, prepare(asked))
