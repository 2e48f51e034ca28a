"""What is sent to the model: sentences that lost a placeholder twice, matches of a memory never."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tiny_bundle import SOURCES, memorised

from heedful.bulk.documents import DocumentJob
from heedful.bulk.lines import LineTranslation
from heedful.bulk.memories import open_lookup
from heedful.data.streams import Lines
from heedful.decoding.options import SearchOptions
from heedful.decoding.texts import EncodedLines, TextCodec
from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that become the sources of the model."""
    texts: list[str] = []
    encode = TextCodec.encode

    def recorded(self: TextCodec, lines: Sequence[str], *given: object, **named: object) -> EncodedLines:
        texts.extend(line for line in lines if line)
        return encode(self, lines, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(TextCodec, "encode", recorded)
    return texts


def translated(text: str, folder: Path, *, memory: Path | None = None, is_document: bool) -> str:
    translator = Translator(memorised())
    (folder / "in.txt").write_text(text, encoding="utf-8")
    with open_lookup([memory] if memory else [], translator.bundle.config) as lookup:
        lines = LineTranslation(translator=translator, options=SearchOptions(max_length=14), lookup=lookup)
        if is_document:
            job = DocumentJob(source=str(folder), output=str(folder), load=lambda: lines)
            job.translate_file(folder / "in.txt", folder / "out.txt")
        else:
            with (folder / "in.txt").open("rb") as stream:
                lines.write(Lines(stream, "in.txt"), folder / "out.txt")
    return (folder / "out.txt").read_text(encoding="utf-8")


def test_a_sentence_that_lost_its_placeholder_is_translated_again_without_it(
    sent: list[str], tmp_path: Path
) -> None:
    answer = translated("the cat %(n)s sleeps .\n", tmp_path, is_document=True)
    assert answer.count("%(n)s") == 1
    assert len(sent) == 2
    assert "%(n)s" not in sent[1]


@pytest.mark.parametrize("is_document", [False, True])
def test_a_match_of_the_memory_is_not_sent_to_the_model(
    sent: list[str], tmp_path: Path, is_document: bool
) -> None:
    memory = tmp_path / "memory.tmx"
    with open_lookup([], memorised().config, written=memory) as lookup:
        lookup.added([Translation.given(SOURCES[0], "ganz anders")])
    text = f"{SOURCES[0]}\n{SOURCES[1]}\n"
    assert translated(text, tmp_path, memory=memory, is_document=is_document).startswith("ganz anders\n")
    assert sent == [SOURCES[1]]
