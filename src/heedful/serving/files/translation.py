"""Translate the units of documents: their sentences in chunks, each with its markers."""

from collections.abc import Callable, Container, Iterator, Sequence
from typing import TYPE_CHECKING

from heedful.serving.files.template import Unit
from heedful.serving.marked_text import MarkedText
from heedful.serving.projection import Output, PairTranslator, aligned_outputs, text_to_translate, translated
from heedful.serving.segments import Segments, has_letters, segment_document

if TYPE_CHECKING:
    from heedful.decoding.options import SearchOptions

Translate = Callable[[Sequence[str], Container[str]], Sequence[Output]]
_CHUNK = 512  # sentences that are translated together


def translate_units(units: Sequence[Unit], translate: Translate) -> Iterator[list[str]]:
    """Yield the translations of units, with their markers, in chunks.

    Args:
        units: of any document; only a chunk of them is taken apart at a time.
        translate: returns the output of each of its first argument, sentences that differ; those that are in
            its second have the links of their words.
    """
    for chunk in _chunks(units):
        written = iter(_sentences(chunk, translate))
        yield [segments.joined([next(written) for _ in segments.sentences]) for segments in chunk]


def _chunks(units: Sequence[Unit]) -> Iterator[list[Segments]]:
    chunk: list[Segments] = []
    size = 0
    for unit in units:
        chunk.append(segment_document(unit.document))
        size += len(chunk[-1].sentences)
        if size >= _CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _sentences(chunk: Sequence[Segments], translate: Translate) -> list[str]:
    steps = translated(
        [(each, segments.document.escape) for segments in chunk for each in segments.sentences]
    )
    asked = next(steps)
    while True:
        outputs = _outputs(asked, translate)
        try:
            asked = steps.send([(each,) for each in outputs])
        except StopIteration as done:
            return [texts[0] for texts in done.value]


def _outputs(sentences: Sequence[MarkedText], translate: Translate) -> list[Output]:
    """Return an output for each sentence; equal ones are translated once."""
    texts = [text_to_translate(each) for each in sentences]
    aligned = {text for text, each in zip(texts, sentences, strict=True) if each.markers}
    asked = [each for each in dict.fromkeys(texts) if has_letters(each)]
    output_of = dict(zip(asked, translate(asked, aligned), strict=True)) if asked else {}
    return [_without_references(output_of.get(text, Output(text))) for text in texts]


def _without_references(output: Output) -> Output:
    return Output(output.text.replace("\0", ""), output.links) if "\0" in output.text else output


def with_translator(translator: PairTranslator, options: "SearchOptions") -> Translate:
    """Return what a translator makes of sentences, with links where they are asked for."""

    def translate(texts: Sequence[str], aligned: Container[str]) -> list[Output]:
        targets = [each.text for each in translator.translations(texts, options=options)]
        marked = [index for index, text in enumerate(texts) if text in aligned]
        outputs = [Output(target) for target in targets]
        if marked:
            linked = aligned_outputs(
                translator, [texts[index] for index in marked], [[targets[index]] for index in marked]
            )
            for index, (output,) in zip(marked, linked, strict=True):
                outputs[index] = output
        return outputs

    return translate
