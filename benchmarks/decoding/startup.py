"""Time the first translation from the shell: one line, the whole command, beside a script over CTranslate2.

    python benchmarks/decoding/startup.py RUN [--text "A man."] [--rounds 10]

Both have the same weights and tokenizer. They take turns; medians of seconds, and the most memory of any
round.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

# What somebody would write over CTranslate2: load, tokenise, translate, print.
CTRANSLATE2 = """
import sys
import ctranslate2, sentencepiece
directory, tokenizer, text = sys.argv[1:]
pieces = sentencepiece.SentencePieceProcessor(tokenizer)
translator = ctranslate2.Translator(directory, inter_threads=1, intra_threads=1)
[result] = translator.translate_batch([pieces.encode(text, out_type=str)], beam_size=4, length_penalty=0.6)
print(pieces.decode(result.hypotheses[0]))
"""


def main() -> int:
    """Measure, and print a line for each command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("--text", default="A man.")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    bundle = next(path for path in (options.run / "best", options.run) if (path / "config.json").is_file())
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "ctranslate2"
        heedful = [sys.executable, "-m", "heedful"]
        subprocess.run(
            [*heedful, "export", str(bundle), "--to", "ctranslate2", "--output", str(exported)],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        script = Path(folder) / "translate.py"
        script.write_text(CTRANSLATE2, encoding="utf-8")
        [tokenizer] = [each for each in bundle.glob("*.model")]
        commands = {
            "heedful": [*heedful, "translate", str(bundle)],
            "ctranslate2": [sys.executable, str(script), str(exported), str(tokenizer), options.text],
        }
        results = {
            name: [once(command, options.text) for _ in range(1)] for name, command in commands.items()
        }
        for _ in range(options.rounds):
            for name, command in commands.items():
                results[name].append(once(command, options.text))
    for name, (_, *rounds) in results.items():  # the first one has warmed the disk's cache
        seconds, cpu, mib = zip(*rounds, strict=True)
        row = {"command": name, "seconds": median(seconds), "cpu_seconds": median(cpu), "peak_mib": max(mib)}
        print(
            json.dumps(
                {key: round(value, 2) if isinstance(value, float) else value for key, value in row.items()}
            )
        )
    return 0


def once(command: list[str], text: str) -> tuple[float, float, float]:
    """Run a command with a line on its stdin; return seconds, those of the CPU, and peak memory in MiB."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        process.stdin.write(f"{text}\n".encode())
        process.stdin.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    seconds = time.perf_counter() - start
    per_mib = 1 << (20 if sys.platform == "darwin" else 10)  # bytes there, KiB elsewhere
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / per_mib


if __name__ == "__main__":
    raise SystemExit(main())
