"""`skipped.tsv`: the sentences of skipped steps."""

from pathlib import Path

from heedful.data.store import ParallelStore
from heedful.runtime.durable import named_in_errors, put_text_in_place
from heedful.text import TokenizerPair
from heedful.training import SkippedEvent
from heedful.workflows.run_directory import SKIPPED_HEADER


class SkippedReport:
    """A row for each sentence pair of a skipped step: the step, the pair's number in the store, its texts."""

    def __init__(self, path: Path, store: ParallelStore, tokenizers: TokenizerPair) -> None:
        self.path = path
        self._store = store
        self._tokenizers = tokenizers

    def add(self, event: SkippedEvent) -> None:
        """Append the pairs of a step."""
        rows = [(str(event.step), str(pair), *self._texts(pair)) for pair in event.pairs]
        is_new = not self.path.exists()
        with named_in_errors(self.path), self.path.open("a", encoding="utf-8") as file:
            if is_new:
                file.write(f"{SKIPPED_HEADER}\n")
            file.writelines("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in rows)

    def drop_after(self, step: int) -> None:
        """Drop the rows of later steps, which are about to be taken again, and an incomplete one."""
        if self.path.exists():
            lines = self.path.read_text(encoding="utf-8", errors="replace").split("\n")
            rows = [line for line in lines if _is_until(line, step)]
            put_text_in_place(self.path, "\n".join([SKIPPED_HEADER, *rows, ""]))

    def _texts(self, pair: int) -> tuple[str, str]:
        """Return both sentences: the original ones if the store has them, else decoded."""
        if self._store.has_text:
            return self._store.text(pair)
        src, tgt = self._store[pair]
        return self._tokenizers.src.decode(src.tolist()), self._tokenizers.tgt.decode(tgt.tolist())


def _is_until(line: str, step: int) -> bool:
    number, *rest = line.split("\t")
    return len(rest) == SKIPPED_HEADER.count("\t") and number.isdigit() and int(number) <= step
