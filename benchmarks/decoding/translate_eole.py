"""Eole's own inference, greedy and beam, on the converted model."""

import logging

import torch
from eole.config.run import PredictConfig
from eole.predict import Translator, build_predictor
from measuring import Ids, Task, Translate, in_batches, measure, parse_task

_TYPES = {"float32": "fp32", "bf16": "bf16"}  # 0.6.4 stops at int8: its check reads a setting that is gone


def load(task: Task) -> Translator:
    """Its predictor, on the directory that `conversion.py` wrote."""
    config = PredictConfig(
        model_path=str(task.material / "eole"),
        src="",  # no file
        world_size=1,
        gpu_ranks=[],
        compute_dtype=_TYPES[task.precision],
        fuse_kvq=True,
        beam_size=task.beam,
        top_k=1 if task.beam == 1 else 0,  # its own greedy search
        length_penalty="avg",
        alpha=1.0,
        min_length=task.exact_length,
        max_length_ratio=0,
    )
    return build_predictor(config, device_id=-1, report_score=False, logger=logging.getLogger("eole"))


def prepare(task: Task) -> Translate:
    """The search, batch by batch."""
    logging.disable(logging.WARNING)
    torch.set_num_threads(task.threads)
    predictor = load(task)

    @torch.inference_mode()
    def translate(sources: list[Ids]) -> list[Ids]:
        predictor.update_settings(max_length=task.max_length(sources))
        batch = {
            "src": torch.tensor(task.padded(sources)),
            "srclen": torch.tensor([len(ids) for ids in sources]),
        }
        found = predictor.predict_batch(batch, attn_debug=False)
        return [task.until_end(best[0].tolist()) for best in found["predictions"]]

    return in_batches(task, translate)


if __name__ == "__main__":
    asked = parse_task(__doc__)
    measure(asked, prepare(asked))
