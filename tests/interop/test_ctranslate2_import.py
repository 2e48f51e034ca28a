"""Models of CTranslate2 give the same numbers and outputs here, whatever their types, versions and parts."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch
from command_line import assert_one_clear_line, heedful, text
from ctranslate2.converters import TransformersConverter
from ctranslate2.specs import Activation
from ctranslate2_files import (
    D_MODEL,
    WORDS,
    Variables,
    changed_binary,
    changed_config,
    interleaved,
    random_spec,
    read_binary,
    save,
    translator,
)
from pretrained_models import FAMILIES
from safetensors.numpy import load_file
from swapped_tensors import swaps
from tolerances import FLOAT32, assert_apart, assert_close

from heedful.decoding.options import SearchOptions
from heedful.decoding.translator import Translator
from heedful.interop.ctranslate2.binary import ModelFile
from heedful.interop.ctranslate2.export import export_ctranslate2
from heedful.interop.ctranslate2.reading import read_ctranslate2
from heedful.interop.huggingface.pretrained import ImportOptions
from heedful.storage.bundle import Bundle, load_bundle
from heedful.storage.torch_weights import assign_weights, meta_model
from heedful.tasks.exchange import import_model

AREN = Path(__file__).parent.parent / "golden" / "aren-transliteration"
ATZMON, AZZA = ["آ", "ت", "ز", "م", "و", "ن"], ["آ", "ز", "ا"]
SOURCES = [ATZMON, AZZA, [*"محمدعلي"], [*"كريستوفر"], [*"ننننن"], [*"الاسكندرية"], ["ن"]]
ENGINES = pytest.mark.parametrize("engine", ["torch", "native"])


def imported(directory: Path, tmp_path: Path, **settings: Any) -> Bundle:  # noqa: ANN401
    """As `heedful import` writes it."""
    output = tmp_path / f"bundle-{len(list(tmp_path.iterdir()))}"
    import_model(
        directory, output=output, settings={f"model.{key}": value for key, value in settings.items()}
    )
    return load_bundle(output)


def read(directory: Path) -> Bundle:
    """The same in memory."""
    found = read_ctranslate2(directory, ImportOptions(settings={}))
    assert found.tokenizers is not None
    model = meta_model(found.config.model)
    assign_weights(model, found.weights)
    return Bundle(found.config, found.tokenizers, model.eval())


def options_of(bundle: Bundle, beam_size: int, **changes: Any) -> SearchOptions:  # noqa: ANN401
    search = bundle.config.decode.replace(beam_size=beam_size, **changes)
    return SearchOptions.from_config(search)


def ids_of(bundle: Bundle, sources: list[list[str]]) -> list[list[int]]:
    end = [bundle.tokenizers.src.eos_id] * bundle.config.tokenizer.source_eos
    return [[*bundle.tokenizers.src.encode(" ".join(source)), *end] for source in sources]


def log_probs(bundle: Bundle, source: list[str], target: list[str]) -> torch.Tensor:
    """Of each target token and the end token, in float64."""
    tgt = bundle.tokenizers.tgt
    ids = tgt.encode(" ".join(target))
    model, start = copy.deepcopy(bundle.model).double(), bundle.config.model.decoder_start_id
    with torch.no_grad():
        logits = model(torch.tensor(ids_of(bundle, [source])), torch.tensor([[start, *ids]]))
    return logits.log_softmax(-1)[0, range(len(ids) + 1), [*ids, tgt.eos_id]]


@pytest.fixture(scope="module", params=["float32", "int16", "int8"])
def aren(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ctranslate2.Translator, Bundle]:
    """The model of CTranslate2's own tests, there and here."""
    return translator(AREN / request.param), imported(AREN / request.param, tmp_path_factory.mktemp("aren"))


def test_log_probabilities_of_a_trained_model_are_equal(aren: tuple[ctranslate2.Translator, Bundle]) -> None:
    theirs, bundle = aren
    outputs = [result.hypotheses[0] for result in theirs.translate_batch(SOURCES)]
    assert outputs[:2] == [["a", "t", "z", "m", "o", "n"], ["a", "z", "z", "a"]]
    for source, output in zip(SOURCES, outputs, strict=True):
        [scored] = theirs.score_batch([source], [output])
        assert_close(log_probs(bundle, source, output), scored.log_probs, FLOAT32.MODEL)  # of float32, there
    for engine in ("torch", "native"):
        scores = Translator(bundle, engine=engine).score_ids(
            ids_of(bundle, SOURCES),
            [
                [*bundle.tokenizers.tgt.encode(" ".join(output)), bundle.tokenizers.tgt.eos_id]
                for output in outputs
            ],
            options=options_of(bundle, 1),
        )
        for scored, result in zip(scores, theirs.score_batch(SOURCES, outputs), strict=True):
            assert_close(scored.model_log_probs, result.log_probs, FLOAT32.MODEL)


@ENGINES
@pytest.mark.parametrize("beam_size", [1, 2, 4])
def test_n_best_lists_of_a_trained_model_are_equal(
    aren: tuple[ctranslate2.Translator, Bundle],
    beam_size: int,
    engine: Any,  # noqa: ANN401
) -> None:
    """With the settings of `translate_batch`, which are the bundle's."""
    theirs, bundle = aren
    results = theirs.translate_batch(
        SOURCES, beam_size=beam_size, num_hypotheses=beam_size, return_scores=True
    )
    ours = Translator(bundle, engine=engine).search_ids(
        ids_of(bundle, SOURCES), options=options_of(bundle, beam_size, n_best=beam_size)
    )
    for hypotheses, result in zip(ours, results, strict=True):
        tokens = [bundle.tokenizers.tgt.tokens(each.ids) for each in hypotheses]
        assert tokens == result.hypotheses
        assert_close([each.score for each in hypotheses], result.scores, FLOAT32.SENTENCE)


@ENGINES
@pytest.mark.parametrize("beam_size", [1, 4])
def test_outputs_are_those_that_its_own_tests_expect(
    aren: tuple[ctranslate2.Translator, Bundle],
    beam_size: int,
    engine: Any,  # noqa: ANN401
) -> None:
    """tests/translator_test.cc of CTranslate2, as far as heedful has the option."""
    bundle = aren[1]
    found = Translator(bundle, engine=engine)

    def search(sources: list[list[str]], *, prefixes: Any = None, **changes: Any) -> list[str]:  # noqa: ANN401
        """The best output of each; of a prefix, its tokens too."""
        outputs = found.search_ids(
            ids_of(bundle, sources),
            options=options_of(bundle, beam_size, **changes),
            prefixes=prefixes and [[bundle.tokenizers.tgt.encode(t)[0] for t in each] for each in prefixes],
        )
        return [" ".join(bundle.tokenizers.tgt.tokens(each[0].ids)) for each in outputs]

    assert search([AZZA, ATZMON]) == ["a z z a", "a t z m o n"]
    assert len(search([ATZMON], max_length=3)[0].split()) == 3
    assert len(search([ATZMON], min_length=8)[0].split()) == 8
    prefixes = [["a", "t", "s"], [], ["a", "t", "z", "o"], []]
    assert search([ATZMON, ATZMON, ATZMON, AZZA], prefixes=prefixes) == [
        "a t s u m o n", "a t z m o n", "a t z o m o n", "a z z a"
    ]  # fmt: skip
    # There, the probability of a prefix counts in the score of a beam; here it is 1.
    assert search([ATZMON], prefixes=[["<unk>", "t"]], length_penalty=0.0) == ["<unk> t z m o n"]
    repeated = search([["ن"] * 50], no_repeat_ngram_size=3)[0].split()
    assert len({*zip(repeated, repeated[1:], repeated[2:], strict=False)}) == len(repeated) - 2


def test_text_is_tokens_with_spaces_and_the_command_says_so(tmp_path: Path) -> None:
    outcome = heedful("import", AREN / "int8", "-o", tmp_path / "bundle")
    assert (outcome.code, outcome.out) == (0, f"{tmp_path / 'bundle'}\n")
    assert "a line is its tokens with spaces between them" in outcome.err
    bundle = load_bundle(tmp_path / "bundle")
    texts = [" ".join(ATZMON), "", " ".join(AZZA)]
    assert Translator(bundle).translate(texts) == ["a t z m o n", "", "a z z a"]
    card = (tmp_path / "bundle" / "README.md").read_text(encoding="utf-8")
    assert "layout `ctranslate2`" in card
    assert "a line is its tokens" in card


KINDS: dict[str, dict[str, Any]] = {
    "opennmt-py": {"table": interleaved(300)},
    "opennmt-tf": {"tgt_words": [*WORDS, "▁x"]},
    "learned": {"table": np.random.default_rng(5).normal(0, 0.3, (99, D_MODEL)).astype(np.float32)},
    "post": {"pre_norm": False},
    "post-and-final-norm": {"pre_norm": False, "layernorm_embedding": True, "scale_embeddings": False},
    "no-biases": {"bias": False, "output_bias": False},
    "untied": {"tied": False, "num_layers": (1, 3)},
    "gelu": {"activation": Activation.GELU},
    "gelu-tanh": {"activation": Activation.GELUTanh, "scale_embeddings": np.float32(D_MODEL**0.5)},
    "t5-like": {"rms_norm": True, "ffn_glu": True, "activation": Activation.SWISH},
}


def assert_equal(directory: Path, bundle: Bundle) -> None:
    generator = np.random.default_rng(3)
    words = {side: getattr(bundle.tokenizers, side).tokens(range(4, 30)) for side in ("src", "tgt")}
    theirs = translator(directory)
    for src_len, tgt_len in ((7, 5), (1, 1), (13, 21)):
        source, target = (
            generator.choice(words[side], length).tolist()
            for side, length in (("src", src_len), ("tgt", tgt_len))
        )
        [scored] = theirs.score_batch([source], [target])
        assert_close(log_probs(bundle, source, target), scored.log_probs, FLOAT32.MODEL)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_of_model_is_equal(kind: dict[str, Any], tmp_path: Path) -> None:
    spec = random_spec(**kind)
    directory = save(spec, tmp_path / "model")
    bundle = read(directory)
    assert_equal(directory, bundle)
    positions = {"opennmt-py": "sinusoidal", "learned": "learned"}
    name = next(name for name, each in KINDS.items() if each is kind)
    assert bundle.config.model.positions == positions.get(name, "opennmt-tf")


@pytest.mark.parametrize("quantization", ["float16", "bfloat16", "int16", "int8", "int8_float16"])
def test_every_type_of_weights_is_equal(quantization: str, tmp_path: Path) -> None:
    directory = save(random_spec(table=interleaved(99)), tmp_path / "model", quantization)
    assert_equal(directory, read(directory))


@pytest.mark.parametrize("quantization", [None, "int16", "int8"])
@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_every_version_of_the_format_is_equal(version: int, quantization: str | None, tmp_path: Path) -> None:
    directory = save(random_spec(), tmp_path / "model", quantization)

    def with_flag(variables: Variables) -> None:
        """Of older files, settings are variables; and where all of a kind have 4 bytes, these are float32."""
        variables["with_source_eos"] = np.asarray(1, np.int8)
        if version < 4:
            for name in [name for name, each in variables.items() if each.dtype == np.int32]:
                del variables[name]

    changed_binary(directory, with_flag, version)
    (directory / "config.json").unlink()
    bundle = read(directory)
    assert bundle.config.tokenizer.source_eos
    assert_equal(directory, bundle)


def test_a_start_of_zeros_and_a_missing_padding_token_become_rows_that_are_never_written(
    tmp_path: Path,
) -> None:
    words = ["</s>", "<unk>", *(f"▁w{i}" for i in range(29))]
    for bias in (True, False):
        spec = random_spec(src_words=words, output_bias=bias)
        spec.decoder.start_from_zero_embedding = True
        spec.config.decoder_start_token, spec.config.add_source_eos = "</s>", True
        directory = save(spec, tmp_path / f"model-{bias}")
        bundle = read(directory)
        assert bundle.tokenizers.tgt.tokens(range(31, 33)) == ["<pad>", "<start>"]
        assert (bundle.config.model.src_pad_id, bundle.config.model.decoder_start_id) == (31, 32)
        assert_equal(directory, bundle)
        found = Translator(bundle).search_ids(
            [[5, 6, 7, 0]], options=options_of(bundle, 4, n_best=4, max_length=30)
        )
        assert all(max(each.ids) < 31 for each in found[0])


@pytest.mark.parametrize("quantization", [None, "int8", "bfloat16"])
def test_weights_are_read_a_few_rows_at_a_time(
    quantization: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quantised rows, and the added ones of padding and of a start of zeros, are the same in blocks."""
    spec = random_spec(src_words=["</s>", "<unk>", *(f"▁w{i}" for i in range(29))], output_bias=True)
    spec.decoder.start_from_zero_embedding = True
    spec.config.decoder_start_token = "</s>"
    directory = save(spec, tmp_path / "model", quantization)
    import_model(directory, output=tmp_path / "whole")
    in_float32, sizes = ModelFile.rows, []

    def noted(model: ModelFile, name: str, rows: slice) -> Any:  # noqa: ANN401
        values = in_float32(model, name, rows)
        sizes.append(values.size)
        return values

    monkeypatch.setattr(ModelFile, "rows", noted)
    monkeypatch.setattr("heedful.storage.bundle._BLOCK", 100)
    import_model(directory, output=tmp_path / "in-blocks")
    files = [tmp_path / each / "model.safetensors" for each in ("whole", "in-blocks")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert sum(sizes) >= sum(each.size for each in load_file(files[0]).values()) - 5 * D_MODEL
    assert max(sizes) <= 100


def tensors(directory: Path) -> dict[str, bytes]:
    """The bytes of every weight in a file, by name."""
    _, _, variables, aliases = read_binary(directory / "model.bin")
    every = variables | {alias: variables[name] for alias, name in aliases}
    return {name: each.tobytes() for name, each in every.items() if each.dtype == np.float32 and each.ndim}


def test_what_comes_from_ctranslate2_goes_back_with_the_same_bytes(tmp_path: Path) -> None:
    models = {"opennmt-py": interleaved(2048), "opennmt-tf": None, "learned": KINDS["learned"]["table"]}
    for name, table in models.items():
        spec = random_spec(table=table, tgt_words=[*WORDS, "▁x"] if name == "opennmt-tf" else None)
        directory = save(spec, tmp_path / name)
        bundle = read(directory)
        export_ctranslate2(bundle, tmp_path / f"{name}-again")
        assert tensors(tmp_path / f"{name}-again") == tensors(directory)
        for file in directory.glob("*vocabulary.json"):
            assert (tmp_path / f"{name}-again" / file.name).read_bytes() == file.read_bytes()
        again = read(tmp_path / f"{name}-again")
        assert again.tokenizers.fingerprint() == bundle.tokenizers.fingerprint()
        assert again.config.model == bundle.config.model


def test_the_trained_model_goes_back_with_the_same_bytes(tmp_path: Path) -> None:
    export_ctranslate2(imported(AREN / "float32", tmp_path), tmp_path / "again")
    again = translator(tmp_path / "again")
    [result] = again.translate_batch([ATZMON])
    assert result.hypotheses[0] == ["a", "t", "z", "m", "o", "n"]
    before = (AREN / "float32" / "model.bin").read_bytes()
    weights = tensors(tmp_path / "again")
    assert len(weights) == 200
    assert all(each in before for each in weights.values())


def test_a_swapped_tensor_is_noticed(tmp_path: Path) -> None:
    directory = save(
        random_spec(num_layers=(1, 1), tgt_words=[*WORDS[:-1], "▁x"], tied=False), tmp_path / "model"
    )
    source, target = ["▁w3", "▁w5", "▁w8"], ["▁w1", "▁w9", "▁w4"]
    expected = torch.tensor(translator(directory).score_batch([source], [target])[0].log_probs)
    content = (directory / "model.bin").read_bytes()
    _, _, variables, _ = read_binary(directory / "model.bin")
    changed = list(swaps({name: each for name, each in variables.items() if each.ndim}))
    assert len(changed) > 25
    for what, swapped in changed:
        changed_binary(directory, lambda found, swapped=swapped: found.update(swapped))
        assert_apart(log_probs(read(directory), source, target), expected, FLOAT32.MODEL, note=what)
        (directory / "model.bin").write_bytes(content)


def test_a_directory_is_translated_with_and_comes_back_with_its_tokenizers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bundle = imported(AREN / "float32", tmp_path)
    assert heedful("export", bundle.path or "", "--to", "ctranslate2", "-o", tmp_path / "ct2").code == 0
    found = heedful("translate", tmp_path / "ct2", stdin=text([" ".join(ATZMON)]))
    assert (found.code, found.out) == (0, "a t z m o n\n")


POSITIONS = "encoder/layer_0/self_attention/relative_position_keys"
LINEAR = "decoder/layer_1/ffn/linear_1/weight"
INNER = "encoder/layer_0/ffn/linear_0/weight"
CAPPED = "decoder/final_logit_softcapping"
NO_SCALE = {INNER: np.zeros((64, 32), np.int8), f"{INNER}_scale": np.zeros(64, np.float32)}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda variables: variables.update({POSITIONS: np.zeros((5, 8), np.float32)}), POSITIONS),
        (lambda variables: variables.pop(LINEAR), LINEAR),
        (lambda variables: variables.update({LINEAR: np.zeros((4, 4), np.float32)}), r"\(4, 4\)"),
        (lambda variables: variables.update({"decoder/num_heads": np.asarray(8, np.int16)}), "num_heads"),
        (lambda variables: variables.update({CAPPED: np.asarray(30, np.float32)}), CAPPED),
        (lambda variables: variables.update(NO_SCALE), INNER),
    ],
)
def test_what_would_change_the_outputs_is_refused_by_name(
    change: Callable[[Variables], None], named: str, tmp_path: Path
) -> None:
    directory = save(random_spec(), tmp_path / "model")
    changed_binary(directory, change)
    assert re.search(named, refusal(directory, tmp_path))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ({"activation": Activation.GELUSigmoid}, {}),
        ({"scale_embeddings": np.float32(3.0)}, {}),
        ({}, {"quantization_type": 1}),
        ({}, {"decoder_start_token": None}),
        ({}, {"decoder_start_token": "<go>"}),
        ({}, {"eos_token": 3}),
        ({}, {"layer_norm_epsilon": "x"}),
    ],
)
def test_kinds_and_settings_that_are_not_supported_are_named(
    kind: dict[str, Any], settings: dict[str, Any], tmp_path: Path
) -> None:
    directory = save(random_spec(**kind), tmp_path / "model")
    changed_config(directory, **settings)
    assert next(iter(kind | settings)) in refusal(directory, tmp_path)


def refusal(directory: Path, tmp_path: Path, *more: object) -> str:
    outcome = heedful("import", directory, "-o", tmp_path / "bundle", *more)
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    assert not [*tmp_path.glob("*bundle*")]  # nor what was begun
    return outcome.err


def test_an_unknown_key_passes_on_request(tmp_path: Path) -> None:
    directory = save(random_spec(), tmp_path / "model")
    changed_config(directory, author="x")
    assert "if it only describes text, give --ignore 'author'" in refusal(directory, tmp_path)
    assert "--ignore 'x': there is no such key" in refusal(directory, tmp_path, "--ignore", "x")
    known = refusal(directory, tmp_path, "--ignore", "author", "--ignore", "eos_token")
    assert "--ignore 'eos_token': it is known and followed" in known
    assert heedful("import", directory, "-o", tmp_path / "bundle", "--ignore", "author").code == 0
    assert "ignored on request: `author`" in (tmp_path / "bundle" / "README.md").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore")
def test_a_conversion_of_marian_from_transformers_is_equal(tmp_path: Path) -> None:
    """transformers' tokenizer adds the end token, CTranslate2 none; and it starts from a zero embedding."""
    FAMILIES["marian"].save(tmp_path / "marian", strength=0.5)
    converter = TransformersConverter(str(tmp_path / "marian"), copy_files=["source.spm", "target.spm"])
    converter.convert(str(tmp_path / "ct2"))
    notes: list[str] = []
    import_model(tmp_path / "ct2", output=tmp_path / "bundle", notify=notes.append)
    assert "a conversion from transformers, whose tokenizers add one, and so does this bundle" in notes[0]
    bundle = load_bundle(tmp_path / "bundle")
    assert bundle.config.model.positions == "concatenated"
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    lines = ["the old house is small .", "a cat and a dog", "where is the station ?"]
    results = translator(tmp_path / "ct2").translate_batch(
        [[*src.tokens(src.encode(line)), "</s>"] for line in lines],
        max_decoding_length=20,
        return_scores=True,
    )
    found = Translator(bundle).translations(lines, options=options_of(bundle, 2, max_length=20))
    assert [tgt.tokens(each.hypotheses[0].ids) for each in found] == [each.hypotheses[0] for each in results]
    scores = [each.scores[0] for each in results]
    assert_close([each.hypotheses[0].score for each in found], scores, FLOAT32.SENTENCE)


def test_damaged_files_and_contradictions_are_one_line(tmp_path: Path) -> None:
    directory = save(random_spec(), tmp_path / "model")
    assert "model.num_heads=8" in refusal(directory, tmp_path, "--set", "model.num_heads=8")
    given = heedful("import", directory, "-o", tmp_path / "b", "--src-vocab", "a", "--tgt-vocab", "b")
    assert_one_clear_line(given, 2, "'ctranslate2'")
    content = (directory / "model.bin").read_bytes()
    for damaged, named in (
        (content[:999], "truncated"),
        (content + b"x", "1 bytes"),
        (b"\7" + content[1:], "version 7"),
        (b"", "model.bin: "),
    ):
        (directory / "model.bin").write_bytes(damaged)
        assert named in refusal(directory, tmp_path)
    (directory / "model.bin").write_bytes(content)
    (directory / "shared_vocabulary.json").write_text('["<unk>", "</s>", "<s>"]')
    assert "3 src tokens, but 31 rows" in refusal(directory, tmp_path)
    (directory / "shared_vocabulary.json").unlink()
    assert "shared_vocabulary.json" in refusal(directory, tmp_path)


def test_the_formula_of_a_conversion_can_be_put_right(tmp_path: Path) -> None:
    """CTranslate2's conversions of Marian's models have other sinusoids and epsilons than Marian."""
    directory = save(random_spec(pre_norm=False), tmp_path / "model")
    bundle = imported(directory, tmp_path, positions="marian", layer_norm_eps=1e-6)
    assert (bundle.config.model.positions, bundle.config.model.layer_norm_eps) == ("marian", 1e-6)
