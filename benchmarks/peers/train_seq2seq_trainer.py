"""Hugging Face MarianMTModel in Seq2SeqTrainer, which groups by length but counts a batch in sentences."""

import tempfile
from typing import Any

import torch
from batches import Ids, read_ids
from measuring import Stopwatch, Task, parse_task
from sizes import BETAS, LABEL_SMOOTHING, LEARNING_RATE
from torch.nn.utils.rnn import pad_sequence
from train_marian import marian_config
from transformers import (
    MarianMTModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
    TrainerControl,
    TrainerState,
)

_IGNORED = -100  # the label of padding


class Examples(torch.utils.data.Dataset):
    """The pairs, as Trainer wants them."""

    def __init__(self, ids: Ids) -> None:
        self.ids = ids

    def __len__(self) -> int:
        return len(self.ids.src)

    def __getitem__(self, index: int) -> dict[str, Any]:
        eos = [self.ids.eos_id]
        src, tgt = self.ids.src[index] + eos, self.ids.tgt[index] + eos
        return {"input_ids": src, "labels": tgt, "length": max(len(src), len(tgt))}


class Collator:
    """Pads a list of examples."""

    def __init__(self, ids: Ids) -> None:
        self.ids = ids

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Return the tensors of one batch, all padded on the right."""
        bos = self.ids.bos_id
        src = _padded([row["input_ids"] for row in examples], self.ids.pad_id)
        return {
            "input_ids": src,
            "attention_mask": (src != self.ids.pad_id).long(),
            "decoder_input_ids": _padded([[bos, *row["labels"][:-1]] for row in examples], self.ids.pad_id),
            "labels": _padded([row["labels"] for row in examples], _IGNORED),
        }


class CountingTrainer(Seq2SeqTrainer):
    """Seq2SeqTrainer, listened to: how many tokens the last batch had, and its loss."""

    last_tokens = 0
    last_loss = 0.0

    def training_step(
        self,
        model: torch.nn.Module,
        inputs: dict[str, torch.Tensor],
        num_items_in_batch: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Train on one batch."""
        self.last_tokens = int((inputs["labels"] != _IGNORED).sum())
        loss = super().training_step(model, inputs, num_items_in_batch)
        self.last_loss = float(loss)
        return loss


class UntilTheTimeIsOver(TrainerCallback):
    """Tells the stopwatch of each update."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch
        self.trainer: CountingTrainer | None = None

    def on_step_end(
        self, args: Seq2SeqTrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Stop where the stopwatch does."""
        if self.trainer and self.watch.step(self.trainer.last_tokens, self.trainer.last_loss):
            control.should_training_stop = True


def _padded(rows: list[list[int]], value: int) -> torch.Tensor:
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value)


def main(task: Task) -> None:
    """Train until the time is over, and report."""
    torch.manual_seed(1)
    ids = read_ids(task.material)
    examples = Examples(ids)
    longer_sides = sum(example["length"] for example in examples)
    sentences = max(1, round(task.size.budget * len(examples) / longer_sides))
    watch = Stopwatch(task)
    listener = UntilTheTimeIsOver(watch)
    with tempfile.TemporaryDirectory() as directory:
        arguments = Seq2SeqTrainingArguments(
            output_dir=directory,
            per_device_train_batch_size=sentences,
            train_sampling_strategy="group_by_length",
            length_column_name="length",
            remove_unused_columns=False,
            max_steps=1_000_000,
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant",
            optim="adamw_torch_fused",
            adam_beta1=BETAS[0],
            adam_beta2=BETAS[1],
            weight_decay=0.0,
            max_grad_norm=0.0,
            label_smoothing_factor=LABEL_SMOOTHING,
            use_cpu=True,
            bf16=task.precision == "bfloat16",
            torch_compile=task.is_compiled,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = CountingTrainer(
            model=MarianMTModel(marian_config(task.size, ids, attention=task.attention)),
            args=arguments,
            train_dataset=examples,
            data_collator=Collator(ids),
            callbacks=[listener],
        )
        listener.trainer = trainer
        trainer.train()
    watch.report(
        "transformers",
        f"Seq2SeqTrainer, {task.attention} attention, {sentences} sentences a batch, "
        "grouped by length, fused AdamW",
    )


if __name__ == "__main__":
    main(parse_task(__doc__))
