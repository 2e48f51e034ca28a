"""Write the tables of docs/performance.md and docs/results/*.md from docs/results/*.json.

    python benchmarks/report.py

A table stands between `<!-- begin PLACE -->` and `<!-- end PLACE -->`. performance.md has six lines for each
class of CPU (CLASS-headlines). The pages in docs/results/ compare every setting with the fastest other
package (CLASS-results), and have every row of each file (its NAME). results/gpu.md has what
`benchmarks/gpu.py --page` kept (gpu). All else is written by hand. `benchmarks/record.py` adds a result.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from results import CLASSES, RESULTS, full_table, headlines, load, summary

import gpu

PAGE = RESULTS.parent / "performance.md"
GPU = RESULTS / "gpu.jsonl"


def pages(results: Path = RESULTS, page: Path = PAGE) -> Iterator[tuple[Path, str]]:
    """Yield each page and the text that it should have.

    Raises:
        ValueError: a page has a place for a result that does not exist, or a result has no place.
    """
    found = load(results)
    tables = {f"{name}-results": summary(found, name) for name in CLASSES}
    tables |= {f"{name}-headlines": headlines(found, name) for name in CLASSES}
    tables |= {result.name: full_table(result) for result in found}
    tables["gpu"] = gpu.tables(gpu.read(GPU) if GPU.exists() else [])
    used: set[str] = set()
    for path in (page, *sorted(results.glob("*.md"))):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"<!-- begin (\S+) -->", text):
            if name not in tables:
                raise ValueError(f"{path.name}: no result is called {name}")
            begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
            head, _, rest = text.partition(begin)
            text = f"{head}{begin}\n{tables[name]}\n{end}{rest.partition(end)[2]}"
            used.add(name)
        yield path, text
    if missing := sorted(result.name for result in found if result.name not in used):
        raise ValueError(f"no page of {results.name}/ has a place for {', '.join(missing)}")


def main() -> int:
    """Write every page whose text changes."""
    for path, text in pages():
        if path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
