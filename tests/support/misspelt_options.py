"""Misspelt options of public functions: mypy, which checks this file, finds every one.

`warn_unused_ignores` makes an ignored line an error if there is nothing to ignore, so a function that took
any keyword would fail the type check.
"""

import heedful
from heedful.tasks.seeds import SeedsResult


def misspelt(translator: heedful.Translator) -> None:
    """Is not called."""
    translator.translate(["a"], beem_size=1)  # type: ignore[call-arg]
    translator.translations(["a"], n_bests=1)  # type: ignore[call-arg]
    translator.translate_lines(["a"], lenght_penalty=1.0)  # type: ignore[call-arg]
    heedful.SearchOptions(beem_size=1)  # type: ignore[call-arg]
    heedful.Transformer(d_modle=8)  # type: ignore[call-arg]
    heedful.ModelConfig(d_modle=8)  # type: ignore[call-arg]
    heedful.train(src="a", tgt="b", max_step=1)  # type: ignore[call-overload]

    heedful.translate_file(translator, "a", "b", resme=True)  # type: ignore[call-arg]
    heedful.evaluate(translator, src="a", ref="b", metrics="bleu")  # type: ignore[call-arg]
    heedful.import_model("a", output="b", layuot="marian")  # type: ignore[call-arg]
    heedful.export_model("a", to="onnx", outputs="b")  # type: ignore[call-arg]
    heedful.distill("a", src="b", output="c", presets="tiny")  # type: ignore[call-arg]
    heedful.back_translate("a", mono="b", src="c", tgt="d", output="e", tags="")  # type: ignore[call-arg]


def of_another_type(translator: heedful.Translator) -> None:
    """Is not called."""
    translator.translate(["a"], beam_size="1")  # type: ignore[arg-type]
    heedful.train(src="a", tgt="b", max_steps="1")  # type: ignore[call-overload]


def right(translator: heedful.Translator) -> SeedsResult:
    """Is not called."""
    translator.translate(["a"], beam_size=1, sample=False)
    best = heedful.train(src="a", tgt="b", max_steps=1, preset="tiny").best
    translator.translate([best.name])
    return heedful.train(src="a", tgt="b", seeds=[1, 2])
