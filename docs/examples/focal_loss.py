"""A loss: focal loss (Lin et al., 2017, equation 4), in which tokens that the model predicts well count less.

    heedful train ... --plugin focal_loss.py --set train.loss=focal_loss:FocalLoss

In Python it is `heedful.train(..., loss=FocalLoss(gamma=3.0))`. `FocalLoss` must be in a module, not in the
script: other processes import it.
"""

from dataclasses import dataclass

import torch

from heedful.data.batches import Batch
from heedful.model.transformer import Transformer
from heedful.training import Loss


@dataclass(frozen=True)
class FocalLoss:
    """The sum of -(1 - p)^gamma log p over the real target tokens, where p is the probability of a token."""

    gamma: float = 2.0

    def __call__(self, model: Transformer, batch: Batch) -> Loss:
        """Return the loss of a batch, and its negative log-likelihood for the log."""
        is_real = batch.tgt_out != model.config.tgt_pad_id  # (B, T)
        logits = model(batch.src, batch.tgt_in)[is_real]  # (N, V)
        nll = torch.nn.functional.cross_entropy(logits, batch.tgt_out[is_real], reduction="none")  # (N,)
        return Loss(((1.0 - (-nll).exp()) ** self.gamma * nll).sum(), nll.detach().sum())
