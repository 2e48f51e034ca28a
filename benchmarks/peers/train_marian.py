"""Hugging Face MarianMTModel in the loop that one writes by hand."""

import torch
import torch.nn.functional as F
from batches import Ids, read_ids, token_batches
from measuring import Stopwatch, Task, parse_task
from sizes import BETAS, DROPOUT, LABEL_SMOOTHING, LEARNING_RATE, Size
from transformers import MarianConfig, MarianMTModel


def marian_config(size: Size, ids: Ids, *, attention: str) -> MarianConfig:
    """Marian with one matrix for both embeddings and the output, as heedful's presets."""
    return MarianConfig(
        vocab_size=ids.vocab_size,
        decoder_vocab_size=ids.vocab_size,
        d_model=size.d_model,
        encoder_layers=size.num_layers,
        decoder_layers=size.num_layers,
        encoder_attention_heads=size.num_heads,
        decoder_attention_heads=size.num_heads,
        encoder_ffn_dim=size.d_ff,
        decoder_ffn_dim=size.d_ff,
        dropout=DROPOUT,
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation_function="relu",
        max_position_embeddings=512,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        use_cache=False,
        pad_token_id=ids.pad_id,
        bos_token_id=ids.bos_id,
        eos_token_id=ids.eos_id,
        decoder_start_token_id=ids.bos_id,
        forced_eos_token_id=None,
        attn_implementation=attention,
    )


def main(task: Task) -> None:
    """Train until the time is over, and report."""
    torch.manual_seed(1)
    ids = read_ids(task.material)
    model = MarianMTModel(marian_config(task.size, ids, attention=task.attention)).train()
    forward = torch.compile(model, dynamic=True) if task.is_compiled else model
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, betas=BETAS, eps=1e-9, fused=True)
    watch = Stopwatch(task)
    for batch in token_batches(ids, task.size.budget):
        with torch.autocast("cpu", torch.bfloat16, enabled=task.precision == "bfloat16"):
            output = forward(
                input_ids=batch.src,
                attention_mask=(batch.src != ids.pad_id).long(),
                decoder_input_ids=batch.tgt_in,
            )
        loss = F.cross_entropy(
            output.logits.flatten(0, 1).float(),
            batch.tgt_out.flatten(),
            ignore_index=ids.pad_id,
            label_smoothing=LABEL_SMOOTHING,
        )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if watch.step(batch.num_tgt_tokens, loss.item()):
            break
    watch.report(
        "transformers", f"MarianMTModel, bare loop, {task.attention} attention, fused Adam, token batches"
    )


if __name__ == "__main__":
    main(parse_task(__doc__))
