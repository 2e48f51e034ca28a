"""Models of published worked examples: a table for each blog post, lecture, notebook and repository."""

import math
import re
from dataclasses import replace

import torch
from torch import Tensor

from heedful.interop.conversion import STACKS, Conversion, Positions, scaled
from heedful.interop.tables import AS_IS, Table, Transform, num_parts

_COMPUTED = Positions(fixed=True, required=False)


def _shift(shift: Tensor, d_model: int) -> Tensor:
    """Expand one number for all dimensions to a vector; a vector is returned unchanged."""
    return shift.reshape(1).repeat(d_model) if shift.numel() == 1 else shift


def _gain(gain: Tensor, d_model: int) -> Tensor:
    """Return the gain of a layer norm that equals one with the unbiased standard deviation (n - 1).

    The unbiased deviation is sqrt(d / (d - 1)) times the biased one.
    """
    return _shift(gain, d_model) * math.sqrt((d_model - 1) / d_model)


ANNOTATED = Table(
    """
    {stack}.layers.{i}.                          {stack}.layers.{i}.
        self_attn.linears.{0,1,2,3}              self_attention.{query,key,value,output}
        feed_forward.{w_1,w_2}                   feed_forward.{inner,outer}
    decoder.layers.{i}.src_attn.linears.{0,1,2,3}  decoder.layers.{i}.cross_attention.{query,key,value,output}
    encoder.layers.{i}.sublayer.                 encoder.layers.{i}.
        {0,1}.norm.{a_2,b_2}                     {self_attention,feed_forward}_norm.{weight,bias} {gain,as_is}
    decoder.layers.{i}.sublayer.                 decoder.layers.{i}.
        {0,1,2}.norm.{a_2,b_2}  {self_attention,cross_attention,feed_forward}_norm.{weight,bias} {gain,as_is}
    {stack}.norm.{a_2,b_2}                       {stack}.final_norm.{weight,bias} {gain,as_is}
    {src,tgt}_embed.0.lut                        {encoder,decoder}.embedding.tokens
    {src,tgt}_embed.1.pe                         {encoder,decoder}.embedding.positions.weight
    generator.proj                               output
    """,
    transforms={"gain": Transform(lambda gain: _gain(gain, gain.numel()))},
    positions=_COMPUTED,
    facts={"norm": "pre", "layer_norm_eps": 1e-6**2},
    about="The Annotated Transformer: norms with the unbiased deviation (`gain`), sinusoids as a buffer. An "
    "epsilon is added to the deviation; its square in the root is equal for a constant row, and agrees to "
    "eps / deviation.",
)


def _of_width(table: Table, conversion: Conversion) -> Table:
    """The two scalars of a norm become vectors of the embedding's width."""
    d_model = conversion.look("input_embed_block.embedding.weight").shape[-1]
    gain = Transform(lambda gain: _gain(gain, d_model))
    shift = Transform(lambda shift: _shift(shift, d_model))
    return replace(table, transforms={"gain": gain, "shift": shift})


ADEVELOPERDIARY = Table(
    """
    {stack}_seq_block.{stack}_blocks.{i}.            {stack}.layers.{i}.
        attention_block.{Wq,Wk,Wv,Wo}                self_attention.{query,key,value,output}
        cross_attention_block.{Wq,Wk,Wv,Wo}          cross_attention.{query,key,value,output}
        ff_block.{linear1,linear2}                   feed_forward.{inner,outer}
    encoder_seq_block.encoder_blocks.{i}.skip_connections.  encoder.layers.{i}.
        {0,1}.layer_norm_block.{alpha,beta}  {self_attention,feed_forward}_norm.{weight,bias}  {gain,shift}
    decoder_seq_block.decoder_blocks.{i}.skip_connections.  decoder.layers.{i}.
        {0,1}.layer_norm_block.{alpha,beta}  {self_attention,cross_attention}_norm.{weight,bias}  {gain,shift}
        2.layer_norm_block.{alpha,beta}              feed_forward_norm.{weight,bias}  {gain,shift}
    {stack}_seq_block.norm.{alpha,beta}              {stack}.final_norm.{weight,bias}  {gain,shift}
    {input,output}_embed_block.embedding             {encoder,decoder}.embedding.tokens
    {input,output}_pos_block.positional_encoding     {encoder,decoder}.embedding.positions.weight
    linear_softmax_block.linear                      output
    """,
    transforms={"gain": AS_IS, "shift": AS_IS},
    adapt=_of_width,
    positions=_COMPUTED,
    facts={"norm": "pre", "layer_norm_eps": 1e-8**2},
    about='A Developer Diary, "Coding Transformer Model from Scratch": norms with the unbiased deviation.',
)

_JADORE = """
    decoder.layer_stack.{last}.pos_ffn.layer_norm  decoder.layers.{last}.feed_forward_norm  root
    {stack}.layer_stack.{i}.                   {stack}.layers.{i}.
        slf_attn.{w_qs,w_ks,w_vs,fc}           self_attention.{query,key,value,output}
        enc_attn.{w_qs,w_ks,w_vs,fc}           cross_attention.{query,key,value,output}
        {slf,enc}_attn.layer_norm              {self,cross}_attention_norm
        pos_ffn.{w_1,w_2}                      feed_forward.{inner,outer}
        pos_ffn.layer_norm                     feed_forward_norm
    {stack}.layer_norm                         {stack}.embedding.norm
    {stack}.position_enc.pos_table             {stack}.embedding.positions.weight
    encoder.src_word_emb                       encoder.embedding.tokens
    decoder.trg_word_emb                       decoder.embedding.tokens
    trg_word_prj                               output
"""
_JADORE_FACTS = {"layer_norm_eps": 1e-6}
JADORE_PRJ = Table(
    _JADORE,
    transforms={"root": Transform(lambda tensor: scaled(tensor, len(tensor) ** -0.5))},
    positions=_COMPUTED,
    facts=_JADORE_FACTS | {"scale_embeddings": False},
    about="jadore801120/attention-is-all-you-need-pytorch: the embedded input has a norm. Logits are divided "
    "by sqrt(d_model) in `prj`: the decoder's last norm absorbs that factor (`root`), so the output's matrix "
    "stays tied.",
)


def _with_scale(table: Table, conversion: Conversion) -> Table:
    """`model.scale_embeddings` must be set: true for `emb`, false for neither."""
    conversion.require(
        isinstance(conversion.settings.get("scale_embeddings"), bool),
        "the weights do not say what is scaled; give --set model.scale_embeddings=true for the "
        "embeddings ('emb'), =false for nothing, or --layout jadore-prj for the logits",
    )
    return table


JADORE = replace(
    JADORE_PRJ,
    transforms={"root": AS_IS},
    facts=_JADORE_FACTS,
    adapt=_with_scale,
    about="As jadore-prj, with logits that are not divided: `root` does nothing.",
)

NPTEL_LECTURE = Table(
    """
    encoder.layers.{i}.                        encoder.layers.{i}.
        attention.{queries,keys,values}        self_attention.{query,key,value}  {query,spread,spread}
        attention.fc_out                       self_attention.output
        norm{1,2}                              {self_attention,feed_forward}_norm
        feed_forward.{0,2}                     feed_forward.{inner,outer}
    decoder.layers.{i}.                        decoder.layers.{i}.
        attention.{queries,keys,values}        self_attention.{query,key,value}  {query,spread,spread}
        attention.fc_out                       self_attention.output
        norm                                   self_attention_norm
    decoder.layers.{i}.transformer_block.      decoder.layers.{i}.
        attention.{queries,keys,values}        cross_attention.{query,key,value}  {query,spread,spread}
        attention.fc_out                       cross_attention.output
        norm{1,2}                              {cross_attention,feed_forward}_norm
        feed_forward.{0,2}                     feed_forward.{inner,outer}
    {stack}.word_embedding                     {stack}.embedding.tokens
    {stack}.position_embedding                 {stack}.embedding.positions
    decoder.fc_out                             output
    """,
    transforms={"query": AS_IS, "spread": AS_IS},
    facts={"scale_embeddings": False},
    about='IIT Delhi\'s lecture "Introduction to LLMs", 17: `SelfAttention`, `TransformerBlock`, '
    "`DecoderBlock`.",
)


def _of_shared_heads(table: Table, conversion: Conversion) -> Table:
    """All heads share one small matrix, so it is repeated for every head (`spread`).

    Scores are divided by sqrt(d_model) instead of sqrt(d_k), so queries are scaled too (`query`).
    """
    d_model = conversion.look("encoder.word_embedding.weight").shape[-1]
    d_k = conversion.look("encoder.layers.0.attention.queries.weight").shape[0]
    whole = conversion.look("encoder.layers.0.attention.fc_out.weight").shape
    conversion.require(
        d_model % d_k == 0 and whole == (d_model, d_model),
        f"heads of size {d_k} and an output {tuple(whole)} do not fit embeddings of size {d_model}",
    )
    num_heads = d_model // d_k

    def spread(matrix: Tensor) -> Tensor:
        conversion.require(
            matrix.shape == (d_k, d_k),
            f"a matrix {tuple(matrix.shape)} of heads that share one of {(d_k, d_k)}",
        )
        return torch.block_diag(*[matrix] * num_heads)  # type: ignore[no-untyped-call,no-any-return]

    # Softmax(q k / sqrt(d_model)) is softmax(q' k / sqrt(d_k)) with q' = q sqrt(d_k / d_model).
    query = Transform(lambda matrix: spread(matrix) * num_heads**-0.5)
    transforms = {"query": query, "spread": Transform(spread)}
    return replace(table, transforms=transforms, facts={**table.facts, "num_heads": num_heads})


KAGGLE_NOTEBOOK = replace(
    NPTEL_LECTURE,
    adapt=_of_shared_heads,
    about='The Kaggle notebook "Attention is all you need: implementation": the lecture\'s names.',
)


_THREAD_LAYER = r"^((?:[\w.]*\.)?{stack}(?:\.\w+)*?)\.\d+\.(?:masked_attn|attn|ffn)(?:_norm)?\."


def _with_lists(table: Table, conversion: Conversion) -> Table:
    """ENCODER and DECODER are the lists of layers, HEADS the numbers of the heads."""
    rows = table.rows
    for stack in STACKS:
        pattern = re.compile(_THREAD_LAYER.format(stack=stack))
        found = sorted({match[1] for name in conversion.left if (match := pattern.match(name))})
        conversion.require(
            len(found) == 1, f"one list of layers is expected below '{stack}.'; there are {found}"
        )
        rows = rows.replace(stack.upper(), found[0])
    num_heads = num_parts(conversion.left, f"{found[0]}.0.attn.attentions.")
    rows = rows.replace("HEADS", ",".join(map(str, range(num_heads))))
    return replace(table, rows=rows, facts={**table.facts, "num_heads": num_heads})


ABHISHEK_THREAD = Table(
    """
    ENCODER.{i}.                               encoder.layers.{i}.
        attn.attentions.[HEADS].{query,key,value}         self_attention.{query,key,value}
        attn.output                            self_attention.output
        {attn,ffn}_norm                        {self_attention,feed_forward}_norm
        ffn.{0,2}                              feed_forward.{inner,outer}
    DECODER.{i}.                               decoder.layers.{i}.
        masked_attn.attentions.[HEADS].{query,key,value}  self_attention.{query,key,value}
        attn.attentions.[HEADS].{query,key,value}         cross_attention.{query,key,value}
        {masked_attn,attn}.output              {self,cross}_attention.output
        {masked_attn,attn,ffn}_norm            {self_attention,cross_attention,feed_forward}_norm
        ffn.{0,3}                              feed_forward.{inner,outer}
    """,
    facts={"scale_embeddings": False},
    adapt=_with_lists,
    by_words=True,
    about='The "from scratch in PyTorch" thread: each head is a module. Stacks may have any name below '
    "`encoder.` and `decoder.`. A dropout shifts the decoder's outer feed-forward layer.",
)


def _with_prefix(table: Table, conversion: Conversion) -> Table:
    """PREFIX is what stands before `encoder.`, usually `transformer.`."""
    pattern = re.compile(r"((?:[\w.]*\.)?)encoder\.layers\.\d+\.self_attn\.in_proj_weight")
    prefix = next((match[1] for name in conversion.left if (match := pattern.fullmatch(name))), "")
    return replace(table, rows=table.rows.replace("PREFIX", prefix))


TORCH = Table(
    """
    PREFIX{stack}.layers.{i}.                  {stack}.layers.{i}.
        self_attn.in_proj_{weight,bias}        self_attention.[query,key,value].{weight,bias}
        multihead_attn.in_proj_{weight,bias}   cross_attention.[query,key,value].{weight,bias}
        {self,multihead}_attn.out_proj         {self,cross}_attention.output
        linear{1,2}                            feed_forward.{inner,outer}
    PREFIXencoder.layers.{i}.norm{1,2}         encoder.layers.{i}.{self_attention,feed_forward}_norm
    PREFIXdecoder.layers.{i}.                  decoder.layers.{i}.
        norm{1,2,3}                            {self_attention,cross_attention,feed_forward}_norm
    PREFIX{stack}.norm                         {stack}.final_norm
    """,
    positions=Positions(fixed=True),
    adapt=_with_prefix,
    by_words=True,
    about="Models with `torch.nn.Transformer`. The weights do not show `norm_first`: models are post-norm, "
    "torch's default, unless `model.norm=pre` is set.",
)
