"""Marian's own models equal Marian: what it said of the fixtures in tests/golden/marian."""

import json
import shutil
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import assert_one_clear_line, heedful
from machine_class import need_native
from numpy.typing import NDArray
from swapped_tensors import swaps

from heedful import Translator, load_bundle
from heedful.decoding.backends.choice import EngineChoice
from heedful.decoding.shortlist import Shortlist
from heedful.errors import InteropError
from heedful.interop.huggingface.pretrained import ImportedBundle, ImportOptions
from heedful.interop.marian_files import read_vocabulary
from heedful.interop.marian_native import read_marian_native, read_shortlist
from heedful.storage.bundle import Bundle
from heedful.storage.torch_weights import assign_weights, meta_model

MARIAN = Path(__file__).parent.parent / "golden" / "marian"
FIXTURES = ["post", "post-separate", "pre", "rms", "ssru", "ssru-pre"]
# Marian prints five decimals.
TOLERANCE = 1e-5 + 5e-6

# Of the extract: first ids, offsets, entries; and the first entries of the source id 5.
FIREFOX = (50, 61, 2818), [5, 107, 238, 541, 548, 622]

Tensors = dict[str, NDArray[Any]]


def judged(name: str) -> dict[str, Any]:
    """What Marian said."""
    content: dict[str, Any] = json.loads((MARIAN / name / "judged.json").read_text(encoding="utf-8"))
    return content


def translator_of(imported: ImportedBundle, *, engine: EngineChoice = "torch", **options: Any) -> Translator:  # noqa: ANN401
    model = meta_model(imported.config.model)
    assign_weights(model, imported.weights)
    assert imported.tokenizers is not None
    bundle = Bundle(imported.config, imported.tokenizers, model.eval())
    return Translator(bundle, engine=engine, **options)


def imported(path: Path, *, engine: EngineChoice = "torch", **settings: object) -> Translator:
    return translator_of(read_marian_native(path, ImportOptions(settings=settings)), engine=engine)


def differences(translator: Translator, name: str, *, sources: slice = slice(None)) -> list[float]:
    """How far the scores of Marian's hypotheses are off here, for each the word that is furthest."""
    found = []
    is_trained_otherwise = "costs" in judged(name)  # see `test_costs_of_training_equal_marians`
    lists = list(zip(judged(name)["sources"], judged(name)["marian"], strict=True))
    for source, hypotheses in lists[sources]:
        texts = [each["text"] for each in hypotheses if each["text"]]
        scored = translator.score([source] * len(texts), texts)
        for score, theirs in zip(scored, (each for each in hypotheses if each["text"]), strict=True):
            words = theirs["words"][:1] if is_trained_otherwise else theirs["words"]
            found.append(max(abs(a - b) for a, b in zip(score.token_log_probs, words, strict=False)))
    return found


@pytest.mark.parametrize("name", FIXTURES)
def test_word_scores_equal_marians(name: str) -> None:
    assert max(differences(imported(MARIAN / name), name)) <= TOLERANCE


def cost_differences(translator: Translator, name: str) -> list[float]:
    pairs = judged(name)["costs"]
    scored = translator.score([src for src, _, _ in pairs], [tgt for _, tgt, _ in pairs])
    means = [-sum(each.token_log_probs) / len(each.token_log_probs) for each in scored]
    return [abs(mean - cost) for mean, (_, _, cost) in zip(means, pairs, strict=True)]


def test_costs_of_training_equal_marians() -> None:
    """Marian's decoder leaves keys and values unnormalised from the second word on, other than its training.

    So a pre-norm decoder with self-attention is compared by the first word, and by the cost in training.
    """
    assert max(cost_differences(imported(MARIAN / "pre"), "pre")) <= 1e-6


@pytest.mark.parametrize("name", ["post", "ssru", "ssru-pre"])
def test_the_native_engine_has_these_scores(name: str) -> None:
    need_native()
    translator = imported(MARIAN / name, engine="native")
    assert translator.generator.backend.name == "native"
    assert max(differences(translator, name)) <= 2e-5


@pytest.mark.parametrize("engine", ["torch", "native"])
@pytest.mark.parametrize("kind", ["plain", "shortlist"])
def test_a_student_writes_what_bergamot_writes(kind: str, engine: EngineChoice, tmp_path: Path) -> None:
    """Greedily, with weights in 8 bits; compared are the beginnings."""
    need_native()
    outcome = heedful("import", MARIAN / "student", "--output", tmp_path / "bundle")
    assert outcome.code == 0, outcome.err
    bundle = load_bundle(tmp_path / "bundle")
    assert bundle.config.model.decoder_unit == "ssru"
    shortlist = Shortlist.load(tmp_path / "bundle" / "shortlist.safetensors") if kind == "shortlist" else None
    translator = Translator(bundle, engine=engine, shortlist=shortlist)
    agreements = 0
    for source, theirs in zip(judged("student")["sources"], judged("student")["bergamot"][kind], strict=True):
        [ours] = translator.translate([source])
        agreements += ours[:9] == theirs[:9]
    assert agreements >= 5  # of 6: bergamot's activations have 8 bits, which change a close choice


def test_recurrent_decoders_cannot_be_exported(tmp_path: Path) -> None:
    assert heedful("import", MARIAN / "ssru", "--output", tmp_path / "bundle").code == 0
    for system in ("ctranslate2", "marian", "onnx"):
        outcome = heedful("export", tmp_path / "bundle", "--to", system, "--output", tmp_path / system)
        assert_one_clear_line(outcome, 1, f"--to {system}", 'model.decoder_unit="ssru"')


def test_a_shortlist_has_the_tokens_that_bergamot_takes() -> None:
    """The first 4 tokens, those of the sources', the sources' themselves, and more up to a multiple of 8."""
    read = read_marian_native(MARIAN / "student", ImportOptions(settings={}))
    assert read.shortlist is not None
    content = (MARIAN / "student" / "lex.s2t.bin").read_bytes()
    entries = np.frombuffer(content, "<u4", offset=48 + 8 * 41).reshape(40, 3)
    expected = {0, 1, 2, 3, 7, 9, *entries[7].tolist(), *entries[9].tolist(), *entries[0].tolist()}
    lowest = (i for i in range(4, 40) if i not in expected)
    while len(expected) % 8:
        expected.add(next(lowest))
    assert read.shortlist.ids([7, 9, 0]).tolist() == sorted(expected)


def test_a_published_shortlist_is_read() -> None:
    """The beginning of Firefox's es-en: 50 first ids, and up to 50 of each source id."""
    read = read_shortlist(MARIAN / "lex.firefox-extract.bin", 60, 32_000)
    assert (read.first, len(read.starts), len(read.candidates)) == FIREFOX[0]
    assert read.candidates[read.starts[5] : read.starts[5] + 6].tolist() == FIREFOX[1]
    with pytest.raises(InteropError, match="62 and 32,000"):
        read_shortlist(MARIAN / "lex.firefox-extract.bin", 62, 32_000)


def npz(name: str) -> Tensors:
    with np.load(MARIAN / name / "model.npz", allow_pickle=False) as file:
        return dict(file)


def changed(name: str, folder: Path, tensors: Tensors) -> Path:
    """A copy of a fixture with other weights."""
    copy = folder / name
    shutil.copytree(MARIAN / name, copy, dirs_exist_ok=True)
    np.savez(copy / "model.npz", **tensors)  # type: ignore[arg-type]
    return copy


def with_options(name: str, folder: Path, **options: str) -> Path:
    """A copy of a fixture with other options in its weights."""
    tensors = npz(name)
    lines = tensors["special:model.yml"].tobytes().rstrip(b"\0").decode()
    kept = [line for line in lines.splitlines() if line.partition(":")[0].replace("-", "_") not in options]
    kept += [f"{key.replace('_', '-')}: {value}" for key, value in options.items()]
    text = "\n".join(kept).encode() + b"\n\0"
    return changed(name, folder, tensors | {"special:model.yml": np.frombuffer(text, np.int8)})


@pytest.mark.slow
@pytest.mark.parametrize("name", FIXTURES)
def test_a_swapped_tensor_is_noticed(name: str, tmp_path: Path) -> None:
    for what, swapped in swaps(npz(name), but=":"):
        translator = imported(changed(name, tmp_path, swapped))
        off = max(differences(translator, name, sources=slice(5, 6)))
        if "costs" in judged(name):
            off = max(off, *cost_differences(translator, name))
        assert off > 1e-3, what


def archived(name: str, file: Path) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in sorted((MARIAN / name).iterdir()):
            if each.name != "judged.json":
                archive.write(each, f"release/{each.name}")
    return file


def test_a_release_becomes_a_bundle(tmp_path: Path) -> None:
    outcome = heedful("import", archived("post", tmp_path / "opus.zip"), "--output", tmp_path / "bundle")
    assert (outcome.code, outcome.out) == (0, f"{tmp_path / 'bundle'}\n")
    assert outcome.err.count("\n") == 1
    assert "model.alignment_layer" in outcome.err  # the files do not say that a head aligns
    bundle = load_bundle(tmp_path / "bundle")
    decode = bundle.config.decode
    assert (decode.beam_size, decode.length_penalty, decode.length_normalization) == (6, 1.0, "power")
    assert max(differences(Translator.load(tmp_path / "bundle"), "post")) <= 2e-5


def test_a_folder_of_two_systems_is_refused_until_one_is_chosen(tmp_path: Path) -> None:
    for model in (MARIAN / "post", MARIAN.parent / "aren-transliteration" / "int8"):
        shutil.copytree(model, tmp_path / "both", dirs_exist_ok=True)
    refused = heedful("import", tmp_path / "both", "--output", tmp_path / "one")
    assert (refused.code, refused.out) == (1, "")
    assert "the layouts marian-native and ctranslate2 fit; choose one by --layout" in refused.err
    assert (
        heedful("import", tmp_path / "both", "--layout", "ctranslate2", "--output", tmp_path / "one").code
        == 0
    )


@pytest.mark.parametrize("path", ["post", "post/model.npz"])
def test_a_folder_and_a_file_are_recognised(path: str, tmp_path: Path) -> None:
    outcome = heedful("import", MARIAN / path, "--output", tmp_path / "bundle")
    assert outcome.code == 0, outcome.err
    assert load_bundle(tmp_path / "bundle").config.model.positions == "marian"


def test_vocabularies_may_be_elsewhere_or_missing(tmp_path: Path) -> None:
    shutil.copy(MARIAN / "post" / "model.npz", tmp_path / "model.npz")
    given = [f"--{side}-vocab={MARIAN / 'post' / 'vocab.yml'}" for side in ("src", "tgt")]
    for name, options in (("texts", given), ("ids", [])):
        outcome = heedful("import", tmp_path / "model.npz", "--output", tmp_path / name, *options)
        assert outcome.code == 0, outcome.err
    assert max(differences(Translator.load(tmp_path / "texts"), "post")) <= 2e-5
    assert not list((tmp_path / "ids").glob("*.spm")) + list((tmp_path / "ids").glob("*.model"))


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"transformer_decoder_autoreg": "rnn", "dec_cell": "gru"}, "dec-cell"),
        ({"transformer_ffn_activation": "gelu", "version": "v1.9.0 abc"}, "--set model.activation=gelu"),
        ({"enc_depth": "3"}, "num_encoder_layers"),
        *(({key: value}, key.replace("_", "-")) for key, value in {
            "transformer_preprocess": "nh", "transformer_postprocess": "dahn",
            "transformer_postprocess_top": "an", "transformer_decoder_autoreg": "average-attention",
            "transformer_ffn_depth": "3", "transformer_decoder_dim_ffn": "64",
            "transformer_ffn_activation": "tanh", "transformer_no_projection": "true",
            "transformer_tied_layers": "[1, 1]", "transformer_train_positions": "true",
            "transformer_attention_mask": "alibi", "right_left": "true", "type": "s2s",
            "input_types": "[sequence, class]", "lemma_dim_emb": "8", "flux_capacitor": "true",
        }.items()),
    ],
)  # fmt: skip
def test_what_is_not_exact_is_refused_by_name(options: dict[str, str], part: str, tmp_path: Path) -> None:
    with pytest.raises(InteropError) as refusal:
        imported(with_options("post", tmp_path, **options))
    assert part in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_older_pre_norm_is_refused_unless_it_is_asked_for(tmp_path: Path) -> None:
    older = with_options("pre", tmp_path, version="v1.10.0 abc 2021-02-06", transformer_ffn_activation="relu")
    with pytest.raises(InteropError, match=r"--set model\.norm=pre"):
        imported(older)
    assert imported(older, norm="pre").bundle.config.model.norm == "pre"


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("word-penalty: 0.5", "word-penalty=0.5"),
        ("normalize: much", "normalize='much'"),
        ("beam-size: 0", "beam-size=0"),
        ("force-decode: true", "force-decode=True"),
        ("unheard-of: 1", "'unheard-of' is unknown"),
    ],
)
def test_searches_that_do_not_exist_here_are_refused(line: str, part: str, tmp_path: Path) -> None:
    copy = changed("post", tmp_path, npz("post"))
    key = line.partition(":")[0]
    text = (copy / "decoder.yml").read_text(encoding="utf-8")
    kept = [each for each in text.splitlines() if not each.startswith(f"{key}:")]
    (copy / "decoder.yml").write_text("\n".join([*kept, line]) + "\n", encoding="utf-8")
    outcome = heedful("import", copy, "--output", tmp_path / "bundle")
    assert_one_clear_line(outcome, 1, "decoder.yml", part)


def test_several_models_packed_weights_and_pickles_are_refused(tmp_path: Path) -> None:
    copy, weights = changed("post", tmp_path, npz("post")), npz("post")
    (copy / "decoder.yml").unlink()
    shutil.copy(copy / "model.npz", copy / "model2.npz")
    outcome = heedful("import", copy, "--layout", "marian-native", "--output", tmp_path / "bundle")
    assert_one_clear_line(outcome, 1, "2 models", "model2.npz")
    (copy / "model2.npz").unlink()
    zeros = {name: np.zeros_like(each) if ":" not in name else each for name, each in weights.items()}
    np.savez_compressed(copy / "model.npz", **zeros)  # type: ignore[arg-type]
    with pytest.raises(InteropError):
        imported(copy)
    np.savez(copy / "model.npz", **weights | {"Wemb": np.asarray([{"a": 1}], dtype=object)})  # type: ignore[arg-type]
    with pytest.raises(InteropError, match="'Wemb'"):
        imported(copy)


@pytest.mark.parametrize(
    "name", ["../evil.npz", "/evil.npz", "a/b/c.npz", ".hidden", "a\\..\\b.npz", "bomb.npz"]
)
def test_names_that_lead_out_of_an_archive_and_bombs_are_refused(name: str, tmp_path: Path) -> None:
    file = archived("post", tmp_path / "opus.zip")
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, bytes(10**8) if name == "bomb.npz" else "x")
    outcome = heedful("import", file, "--output", tmp_path / "bundle")
    assert_one_clear_line(outcome, 1, "opus.zip", "20 times" if name == "bomb.npz" else repr(name))


def test_tokens_are_texts_whatever_yaml_takes_them_for(tmp_path: Path) -> None:
    odd = [
        "~",
        "null",
        "true",
        "1.5",
        "a: b",
        "it's",
        'say "x"',
        "é\u2028",
        "#",
        "-",
        "\U0001f600",
        "a" * 2000,
    ]
    odd += ["0x1", "1e3", "on", ":", "<<", "*"]
    tokens = ["</s>", "<unk>", *odd]
    lines = ["---"]
    for i, token in enumerate(tokens):
        if len(token) > 1000:
            lines += [f"? {token}", f": {i}"]
        elif i in (2, 3, 4, 5):
            lines.append(f"{token}: {i}")
        elif i % 2:
            lines.append(f"{json.dumps(token)}: {i}")
        else:
            lines.append("'" + token.replace("'", "''") + f"': {i}")
    plain = ["0", "~~", "é\u2028", "a\x85b", "\u2029", "no", "0o7", "2001-01-01", "1_000", "="]
    lines += [f"{token}: {i}" for i, token in enumerate(plain, start=len(tokens))]
    (tmp_path / "vocab.yml").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    assert read_vocabulary(tmp_path / "vocab.yml") == [*tokens, *plain]
    with pytest.raises(InteropError, match="have one id, 5"):  # a token that comes twice is not lost
        (tmp_path / "vocab.yml").write_text("a: 4\n~: 5\n~: 5\n", encoding="utf-8")
        read_vocabulary(tmp_path / "vocab.yml")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: 2\nb: 2\n", "have one id, 2"),
        ("a: 3\n", "no token has the id 2"),
        ("a: 1e3\n", "1000.0 is not the id"),
        ("a: {b: 2}\n", "line 1"),
        ("a: &x 2\nb: *x\n", "have one id"),
        ("a 2\n", "line 1"),
        ('"a: 2\n', "line 2"),
        ('"\\ud800": 2\n', "line 1"),
    ],
)
def test_vocabularies_of_other_forms_are_refused(text: str, part: str, tmp_path: Path) -> None:
    (tmp_path / "vocab.yml").write_text(text, encoding="utf-8")
    with pytest.raises(InteropError, match=part):
        read_vocabulary(tmp_path / "vocab.yml")


def _searched(directory: Path) -> tuple[int, float, tuple[str, ...]]:
    read = read_marian_native(directory, ImportOptions(settings={}))
    return read.config.decode.beam_size, read.config.decode.length_penalty, read.notes


@pytest.mark.parametrize(("name", "found"), [("student", (1, 1.0)), ("ssru", (1, 1.0)), ("post", (12, 0.0))])
def test_without_decoder_yml_a_student_is_searched_as_its_clients_do(
    name: str, found: tuple[int, float], tmp_path: Path
) -> None:
    """8 bits with a shortlist, or a recurrent decoder; other models by Marian's own defaults."""
    assert _searched(MARIAN / name)[2] == ()
    files = [file for file in (MARIAN / name).iterdir() if file.name not in ("decoder.yml", "judged.json")]
    for file in files:
        shutil.copy(file, tmp_path / file.name)
    *search, notes = _searched(tmp_path)
    assert (*search,) == found
    assert len(notes) == 1
    (tmp_path / "decoder.yml").write_text("beam-size: 3\nnormalize: 0.6\n")
    assert _searched(tmp_path) == (3, 0.6, ())


LAYER = "transformer-guided-alignment-layer"


@pytest.mark.parametrize(
    ("name", "option", "file", "content", "layer"),
    [
        ("post", None, None, "", None),
        ("post", "last", None, "", None),  # what Marian writes by default
        ("post", "1", None, "", 1),
        ("post", None, "model.npz.yml", "seed: 1\nguided-alignment: corpus.aln.gz\n", 1),
        ("post", None, "model.npz.yml", "seed: 1\nguided-alignment: none\n", None),
        ("post", None, "decoder.yml", "alignment: soft\n", 1),
        ("post", None, "decoder.yml", "gemm-precision: int8shiftAlphaAll\n", 1),
        ("post", None, "decoder.yml", f"{LAYER}: 1\n", 1),
        ("ssru", None, None, "", 3),
        ("ssru", "2", None, "", 2),
        ("ssru", None, "model.npz.yml", "guided-alignment: 'none'\n", None),
    ],
)
def test_the_head_that_guided_alignment_trained_is_in_the_bundle(
    name: str, option: str | None, file: str | None, content: str, layer: int | None, tmp_path: Path
) -> None:
    """The first of the layer, if there was guided alignment: as the kind of model or a file says."""
    folder = with_options(name, tmp_path, **({} if option is None else {LAYER.replace("-", "_"): option}))
    if file is not None:
        with (folder / file).open("a") as stream:
            stream.write(content)
    model = read_marian_native(folder, ImportOptions(settings={})).config.model
    assert (model.alignment_layer, model.alignment_heads) == (layer, 1)
    chosen = read_marian_native(folder, ImportOptions(settings={"alignment_layer": 1})).config.model
    assert chosen.alignment_layer == 1


def test_the_head_of_a_binary_student_and_of_opus_mts_kind_is_known(tmp_path: Path) -> None:
    folder = shutil.copytree(MARIAN / "post", tmp_path / "opus")
    kind = "opus.spm32k.transformer-big-align.model1.npz.best-perplexity.npz"
    (folder / "model.npz").rename(folder / kind)
    options = (folder / "decoder.yml").read_text()
    (folder / "decoder.yml").write_text(options.replace("model.npz", kind))
    for directory in (folder, MARIAN / "student"):
        model = read_marian_native(directory, ImportOptions(settings={})).config.model
        assert model.alignment_layer == model.num_decoder_layers


def test_a_layer_that_the_decoder_does_not_have_is_refused(tmp_path: Path) -> None:
    folder = with_options("post", tmp_path, transformer_guided_alignment_layer="2")
    with pytest.raises(InteropError, match=LAYER):
        read_marian_native(folder, ImportOptions(settings={}))


def _write_bin(directory: Path, file: Path, *, in_8_bits: bool) -> None:
    """Write the arrays of model.npz as a binary file; matrices of layers in 8 bits are turned."""
    items = []
    with np.load(directory / "model.npz") as arrays:
        for name in arrays.files:
            array = arrays[name]
            shape, kind, data = array.shape, 0x0101 if array.dtype == np.int8 else 0x0404, array.tobytes()
            if in_8_bits and array.ndim == 2 and "_W" in name and "Wemb" not in name and min(shape) > 1:
                multiplier = np.float32(127 / np.abs(array).max())
                kind, data = 0x4101, np.rint(array.T * multiplier).astype(np.int8).tobytes()
                data += multiplier.tobytes()
            items.append((name.encode() + b"\0", kind, shape, data + bytes(-len(data) % 256)))
    header = struct.pack("<2Q", 1, len(items))
    header += b"".join(
        struct.pack("<4Q", len(n), kind, len(shape), len(data)) for n, kind, shape, data in items
    )
    header += b"".join(name for name, *_ in items)
    header += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in items)
    padding = -(len(header) + 8) % 256
    content = b"".join(data for *_, data in items)
    file.write_bytes(header + struct.pack("<Q", padding) + bytes(padding) + content)


@pytest.mark.parametrize(("in_8_bits", "shortlist"), [(True, True), (True, False), (False, True)])
def test_a_decoder_with_attention_is_a_students_by_8_bits_and_a_shortlist(
    in_8_bits: bool, shortlist: bool, tmp_path: Path
) -> None:
    _write_bin(MARIAN / "post", tmp_path / "model.bin", in_8_bits=in_8_bits)
    shutil.copy(MARIAN / "post" / "vocab.yml", tmp_path / "vocab.yml")
    size = len((MARIAN / "post" / "vocab.yml").read_text().splitlines())
    if shortlist:
        starts = struct.pack(f"<{size + 1}Q", *[0] * (size + 1))
        numbers = struct.pack("<6Q", 0xF11A48D5013417F5, 0, 5, 5, size + 1, 0)
        (tmp_path / "lex.s2t.bin").write_bytes(numbers + starts)
    beam_size, penalty, notes = _searched(tmp_path)
    assert (beam_size, penalty) == ((1, 1.0) if in_8_bits and shortlist else (12, 0.0))
    assert len(notes) == 1
