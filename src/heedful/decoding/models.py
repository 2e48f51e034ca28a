"""Which models compute a text: an ensemble, or one model with an adapter."""

from collections.abc import Mapping, Sequence

from heedful.decoding.texts import check_one_for_each
from heedful.errors import InputError, suggestion
from heedful.storage.adapter import Adapter
from heedful.storage.bundle import Bundle, WeightVersions
from heedful.text import SpecialTokens

Adapters = (
    str | Adapter | Sequence[str | Adapter | None] | None
)  # by name or as such: of all texts, or of each


def chosen_adapters(
    adapter: Adapters,
    texts: Sequence[str],
    known: Mapping[str, Adapter],
    *,
    engine: str | None,
    ensemble: Sequence[Bundle],
) -> list[Adapter | None]:
    """Return the adapter of each text.

    Args:
        adapter: what was asked for.
        texts: the texts.
        known: the adapters by name.
        engine: the name of a backend that computes none; None: it does.
        ensemble: further models, which an adapter does not change.

    Raises:
        InputError: there is none of that name, they are not as many as the texts, or none is computed here.
    """
    named = [adapter] * len(texts) if isinstance(adapter, str | Adapter | None) else [*adapter]
    check_one_for_each("adapter", named, "texts", texts)
    for name in named:
        if isinstance(name, str) and name not in known:
            raise InputError(f"adapter={name!r}: no such adapter{suggestion(name, known) if known else ''}")
    if any(named) and (ensemble or engine):
        what = "an ensemble" if ensemble else f"engine={engine!r}"
        raise InputError(f"adapter: {what} has none; one model has, with engine='native' or 'torch'")
    return [known[name] if isinstance(name, str) else name for name in named]


def check_unchanged(bundles: Sequence[Bundle], versions: Sequence[WeightVersions]) -> None:
    """Check that weights were not changed since they were copied.

    Raises:
        InputError: they were.
    """
    if [bundle.weight_versions for bundle in bundles] != versions:
        raise InputError(
            "the model was changed after this translator was made, which computes with a copy of it; "
            "make another one, Translator(bundle)"
        )


def check_ensemble(bundles: Sequence[Bundle]) -> None:
    """Check that models can be an ensemble: the same vocabularies and the same special-token template.

    Raises:
        InputError: two of them differ.
    """
    first, *others = bundles
    for number, other in enumerate(others, start=2):
        pairs = [(each.config, each.tokenizers) for each in (first, other)]
        parts: dict[str, list[object]] = {
            "tokenizers": [(each.src.digest(), each.tgt.digest()) for _, each in pairs],
            "numbers of target tokens": [config.model.tgt_vocab_size for config, _ in pairs],
            "special tokens": [SpecialTokens.of(*pair) for pair in pairs],
        }
        if names := [name for name, (ours, theirs) in parts.items() if ours != theirs]:
            raise InputError(
                f"ensemble: {other.path or f'model {number}'}: {' and '.join(names)} differ from the first "
                "model's; give models that were trained with one tokenizer"
            )
