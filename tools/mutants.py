"""Show that the quick tests find known wrong versions: ten of the mathematics, three of the way of a text.

    python tools/mutants.py          # or make mutants

A mutant is one change in a copy of the source: the checkout stays as it is. For each mutant, the tests of
CORE run against the copy until one fails, with as many mutants at once as there are CPUs. Then the tests that
failed run against an unchanged copy, where they must pass. Prints which test found each mutant and after how
many seconds. The exit code is 1 if a mutant was not found or one of these tests fails anyway.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Parts of `make test`, ordered so that mutants are found soon: first the quickest that test the formulas.
CORE = (
    "tests/equivalence/test_losses_are_equal.py",
    "tests/equivalence/test_torch_equals_heedful.py",
    "tests/equivalence/test_accumulation_equals_one_batch.py",
    "tests/equivalence/test_beam_is_exhaustive.py",
    "tests/unit/decoding/test_beam.py",
    "tests/unit/spans/test_pipeline.py",
    "tests/unit/bulk/test_tries_and_memories.py",
    "tests/unit/decoding/test_alignment.py",
    "tests/unit/text/test_sentences.py",
    "tests/e2e/test_lines_that_are_too_long.py",
    "tests/equivalence/test_cache_equals_full.py",
    "tests/equivalence/test_naive_equals_heedful.py",
    "tests/paper",
    "tests/unit/model",
    "tests/unit/decoding/test_translator.py",
    "tests/unit/training/test_optimizer.py",
    "tests/unit/training/test_loop.py",
)
# An editable installation may have a finder of its own, which is asked before the folders of PYTHONPATH.
SITE_CUSTOMIZE = """\
import sys
sys.meta_path[:] = [each for each in sys.meta_path if "editable" not in type(each).__module__]
"""


@dataclass(frozen=True)
class Mutant:
    """A wrong version of heedful: in one file, `old` becomes `new`.

    Attributes:
        name: what is wrong.
        file: below src/heedful.
        old: a text that the file has once.
        new: the text that replaces it.
    """

    name: str
    file: str
    old: str
    new: str

    def apply(self, package: Path) -> None:
        """Change the file in a copy of the package.

        Raises:
            SystemExit: the file does not have the text exactly once.
        """
        path = package / self.file
        source = path.read_text(encoding="utf-8")
        if (count := source.count(self.old)) != 1:
            raise SystemExit(f"error: mutant {self.name!r}: {count} times in {self.file}: {self.old}")
        path.write_text(source.replace(self.old, self.new), encoding="utf-8")


MUTANTS = (
    Mutant(
        "no 1 / sqrt(d_k)",
        "model/attention.py",
        "scores_BHTS = scores_BHTS / math.sqrt(queries_BHTK.shape[-1])",
        "scores_BHTS = scores_BHTS / 1.0",
    ),
    Mutant("padding visible", "model/attention.py", "(ids_BS != pad_id)[", "(ids_BS == ids_BS)["),
    Mutant("one future token visible", "model/attention.py", ".tril(past)[", ".tril(past + 1)["),
    Mutant(
        "ε / V in label smoothing",
        "training/loss.py",
        "log_probs[:, pad_id].sum()) / (logits.shape[1] - 1)",
        "log_probs[:, pad_id].sum()) / logits.shape[1]",
    ),
    Mutant(
        "half of the beam's candidates",
        "decoding/strategies/beam.py",
        "order_BN[:, : 2 * int(self._widths.max())]",
        "order_BN[:, : int(self._widths.max())]",
    ),
    Mutant(
        "unnormalised end scores",
        "decoding/strategies/beam.py",
        "best.totals / self._penalties(length)[:, None]",
        "best.totals / 1.0",
    ),
    Mutant("cache not reordered", "model/attention.py", "layer.target.reorder(rows)", "pass"),
    Mutant(
        "sum for mean of the gradients",
        "training/step.py",
        "return clipped / metrics.num_tgt_tokens",
        "return clipped",
    ),
    Mutant(
        "post-norm as pre-norm",
        "model/layers.py",
        "return norm(x + self.dropout(sublayer(x)))",
        "return x + self.dropout(sublayer(norm(x)))",
    ),
    Mutant(
        "a dropped segment of a long line",
        "decoding/texts.py",
        "parts = split_text(text, src, most)",
        "parts = split_text(text, src, most)[:-1]",
    ),
    Mutant(
        "no second try for a lost placeholder",
        "spans/sentences.py",
        "        if placeholders(outputs[0].text) != own:\n            return ()\n"
        "        outputs = [output for output in outputs if placeholders(output.text) == own]\n",
        "        pass\n",
    ),
    Mutant(
        "a match of the memory is searched",
        "decoding/translation.py",
        'left = [text if match is None else "" for text, match in zip(texts, matches, strict=True)]',
        "left = [*texts]",
    ),
    Mutant(
        "links of joined parts not shifted",
        "decoding/translation.py",
        "alignment.moved(src, tgt)",
        "alignment.moved(0, 0)",
    ),
)


def failing_tests(folder: Path, mutant: Mutant | None, tests: Sequence[str]) -> list[str]:
    """Return the first test that fails against a copy of the source with a mutant; none if all pass.

    Args:
        folder: empty, for the copy.
        mutant: to be applied; None: the source as it is.
        tests: files, folders or names, as pytest takes them; without a mutant, all of them run.

    Raises:
        SystemExit: the mutant does not apply, or pytest cannot run the tests.
    """
    shutil.copytree(ROOT / "src" / "heedful", folder / "heedful")
    (folder / "sitecustomize.py").write_text(SITE_CUSTOMIZE, encoding="utf-8")
    if mutant is not None:
        mutant.apply(folder / "heedful")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:xdist",
        "-o",
        f"cache_dir={folder / 'cache'}",
        *tests,
    ]
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command if mutant is None else [*command, "--exitfirst"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        name = "no mutant" if mutant is None else mutant.name
        raise SystemExit(f"error: {name}: pytest ended with {done.returncode}\n{done.stdout}{done.stderr}")
    failed = folder / "cache" / "v" / "cache" / "lastfailed"
    return list(json.loads(failed.read_text(encoding="utf-8"))) if done.returncode else []


def find(mutants: Sequence[Mutant], tests: Sequence[str], *, at_once: int) -> int:
    """Run the tests against each mutant, print what found it, and return the exit code."""
    start = time.monotonic()

    def search(number: int) -> tuple[list[str], float]:
        start = time.monotonic()
        folder = Path(tempfile.mkdtemp(dir=temporary, prefix=str(number)))
        return failing_tests(folder, mutants[number], tests), time.monotonic() - start

    found_by: list[str] = []
    width = max(len(each.name) for each in mutants)
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(at_once) as pool:
        for mutant, (failed, seconds) in zip(mutants, pool.map(search, range(len(mutants))), strict=True):
            what = (
                f"found by {failed[0]} after {seconds:.0f} s" if failed else f"NOT FOUND in {seconds:.0f} s"
            )
            print(f"{mutant.name:{width}}  {what}", flush=True)
            found_by += failed
        unchanged = sorted(set(found_by))
        control = failing_tests(Path(tempfile.mkdtemp(dir=temporary)), None, unchanged) if unchanged else []
    for each in control:
        print(f"fails without a mutant: {each}")
    print(f"{len(found_by)} of {len(mutants)} wrong versions found in {time.monotonic() - start:.0f} s")
    return int(len(found_by) < len(mutants) or bool(control))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    raise SystemExit(find(MUTANTS, CORE, at_once=os.cpu_count() or 1))
