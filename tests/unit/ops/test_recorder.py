import pytest
import torch
from tolerances import FLOAT32, assert_close

from heedful.model.attention import attention_weights
from heedful.model.transformer import Transformer
from heedful.ops.attention import record_attention
from heedful.settings.model import ModelConfig

B, H, T, S = 2, 3, 5, 7
SRC_PAD = 4


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(53)
    config = ModelConfig(
        d_model=66, num_heads=H, d_ff=13, num_encoder_layers=1, num_decoder_layers=2, dropout=0.1,
        attention_dropout=0.5, src_vocab_size=17, tgt_vocab_size=19, tied="target", src_pad_id=SRC_PAD,
    )  # fmt: skip
    return Transformer.from_config(config).eval()


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(59)
    src, tgt_in = torch.randint(5, 17, (B, S)), torch.randint(5, 19, (B, T))
    src[1, 3:] = SRC_PAD
    return src, tgt_in


def test_every_attention_is_recorded_under_its_name_in_the_order_of_computation(model: Transformer) -> None:
    with record_attention(model) as recorder:
        model(*inputs())
    assert [(each.name, tuple(each.weights.shape)) for each in recorder.maps] == [
        ("encoder.layers.0.self_attention", (B, H, S, S)),
        ("decoder.layers.0.self_attention", (B, H, T, T)),
        ("decoder.layers.0.cross_attention", (B, H, T, S)),
        ("decoder.layers.1.self_attention", (B, H, T, T)),
        ("decoder.layers.1.cross_attention", (B, H, T, S)),
    ]


def test_a_recorded_map_is_what_the_output_was_made_with(model: Transformer) -> None:
    attention = model.decoder.layers[1].get_submodule("cross_attention")
    taken: list[tuple[torch.Tensor, ...]] = []
    hook = attention.register_forward_pre_hook(lambda _, args: taken.append(args))
    with record_attention(model) as recorder:
        model(*inputs())
    hook.remove()
    [(x, context, mask)] = taken
    queries = attention.get_submodule("query")(x).view(B, T, H, 22).transpose(1, 2)
    keys = attention.get_submodule("key")(context).view(B, S, H, 22).transpose(1, 2)
    wanted = (queries @ keys.mT / 22**0.5).masked_fill(~mask, float("-inf")).softmax(-1)
    assert_close(recorder.maps[-1].weights, wanted, FLOAT32.ROW)
    assert_close(attention_weights(queries, keys, mask), wanted, FLOAT32.ROW)


def test_recording_changes_no_output_and_ends_with_its_block(model: Transformer) -> None:
    before = model(*inputs())
    with record_attention(model) as recorder:
        during = model(*inputs())
    count = len(recorder.maps)
    after = model(*inputs())
    assert torch.equal(before, during)
    assert torch.equal(before, after)
    assert len(recorder.maps) == count == 5
    assert all(not part._forward_pre_hooks for part in model.modules())


def test_recording_ends_when_the_block_fails(model: Transformer) -> None:
    with pytest.raises(ZeroDivisionError), record_attention(model):
        raise ZeroDivisionError
    assert all(not part._forward_pre_hooks for part in model.modules())


def test_decoding_step_by_step_records_a_row_at_a_time(model: Transformer) -> None:
    src, tgt_in = inputs()
    with torch.no_grad(), record_attention(model) as whole:
        model(src, tgt_in)
    with torch.no_grad(), record_attention(model) as steps:
        cache = model.start_cache(model.encode(src))
        for t in range(T):
            model.decode_step(tgt_in[:, t], cache)
    name = "decoder.layers.1.cross_attention"
    rows = [each.weights for each in steps.maps if each.name == name]
    [wanted] = [each.weights for each in whole.maps if each.name == name]
    assert_close(torch.cat(rows, dim=2), wanted, FLOAT32.ROW)
