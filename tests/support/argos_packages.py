"""Packages as Argos makes them, with models that CTranslate2 wrote, and what Argos does with them."""

import json
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path

import sentencepiece
from ctranslate2_files import interleaved, random_spec, save, translator
from small_tokenizers import ordinary_pieces, phrases, sentencepiece_model

EOS = 3


def sentences() -> list[str]:
    return list(phrases()[0][:12])


def spm() -> bytes:
    return sentencepiece_model(sum(phrases(), ()), "unigram", 200)


def make_package(
    directory: Path,
    src: str,
    tgt: str,
    *,
    quantization: str | None = "int8",
    seed: int = 1,
    num_layers: tuple[int, int] = (2, 2),
    table_length: int = 300,
    pieces: Sequence[str] | None = None,
    **metadata: object,
) -> Path:
    """Write a package, unpacked, under the name that Argos gives it."""
    package = directory / f"{src}_{tgt}"
    pieces = pieces or [*ordinary_pieces(spm()), "a_b", "▁__x__"]
    words = ["<unk>", "<blank>", "<s>", "</s>", *pieces]
    spec = random_spec(src_words=words, table=interleaved(table_length), seed=seed, num_layers=num_layers)
    spec.decoder.projection.bias[0] -= (
        30  # unknown tokens are replaced by attention, which each has its own of
    )
    spec.decoder.projection.bias[EOS] += 2
    save(spec, package / "model", quantization)
    (package / "sentencepiece.model").write_bytes(spm())
    said = {
        "package_version": "1.9",
        "argos_version": "1.9.0",
        "from_code": src,
        "to_code": tgt,
        "type": "translate",
    }
    (package / "metadata.json").write_text(json.dumps(said | metadata), encoding="utf-8")
    (package / "README.md").write_text("# A package\n", encoding="utf-8")
    return package


def packed(package: Path) -> Path:
    """Pack a directory as Argos does: one folder in a zip archive."""
    file = package.with_name(f"translate-{package.name}.argosmodel")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in sorted(package.rglob("*")):
            if each.is_file():
                archive.write(each, Path(package.name) / each.relative_to(package))
    return file


def translated_by_argos(
    package: Path, lines: list[str], *, prefix: str | None = None, beam_size: int = 4
) -> tuple[list[str], list[float]]:
    """What Argos does with sentences, and the scores: pieces, a beam of 4, and its own detokenisation."""
    processor = sentencepiece.SentencePieceProcessor(
        model_proto=(package / "sentencepiece.model").read_bytes()
    )
    pieces = [processor.encode(line, out_type=str) for line in lines]
    results = translator(package / "model").translate_batch(
        pieces,
        target_prefix=[[prefix]] * len(lines) if prefix else None,
        replace_unknowns=True,
        beam_size=beam_size,
        length_penalty=0.2,
        return_scores=True,
    )
    texts = []
    for result in results:
        text = "".join(result.hypotheses[0]).removeprefix(prefix or "")
        texts.append(text.replace("▁", " ").replace("_", " ").strip())
    return texts, [result.scores[0] for result in results]


def repacked(package: Path, name: str, content: bytes) -> Path:
    """A package with one more member."""
    file = packed(package)
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return file


def unpacked_copy(package: Path, directory: Path) -> Path:
    return Path(shutil.copytree(package, directory / package.name))
