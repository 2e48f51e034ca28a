"""A service as LibreTranslate 1.9.6 is built: Flask, waitress with four threads, and CTranslate2.

    python flask_ctranslate2.py EXPORTED --beam-size 5

serves a model of `heedful export --to ctranslate2`, at POST /translate, on a free port. What LibreTranslate
does besides (cutting texts into sentences, finding their language, counting requests) is left out, in its
favour.
"""

import argparse
import os
import sys
from pathlib import Path

import ctranslate2
import sentencepiece
import waitress
from flask import Flask, request

CORES = os.cpu_count() or 1
SPECIAL = ("<pad>", "<s>", "</s>")


def application(directory: Path, beam_size: int, compute_type: str, threads: int) -> Flask:
    """Return the service of an exported model."""
    app = Flask(__name__)
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(directory / "tokenizer.model"))
    translator = ctranslate2.Translator(
        str(directory),
        inter_threads=max(1, CORES // threads),
        intra_threads=threads,
        compute_type=compute_type,
    )

    @app.post("/translate")
    def translate() -> dict[str, str]:
        text = request.get_json()["q"]
        [result] = translator.translate_batch(
            [tokenizer.encode(text, out_type=str)],
            beam_size=beam_size,
            length_penalty=1.0,
            suppress_sequences=[["<pad>"], ["<s>"]],
            max_batch_size=32,
            return_end_token=True,
        )
        tokens = [token for token in result.hypotheses[0] if token not in SPECIAL]
        return {"translatedText": tokenizer.decode(tokens)}

    return app


def main() -> None:
    """Serve until a signal ends it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--beam-size", type=int, default=5)
    parser.add_argument("--compute-type", default="float32")
    # By default one translation at a time, on all cores, as Argos Translate has it.
    parser.add_argument("--threads", type=int, default=CORES, help="of a translation; as many at once as fit")
    options = parser.parse_args()
    server = waitress.create_server(
        application(options.directory, options.beam_size, options.compute_type, options.threads),
        host="127.0.0.1",
        port=0,
        threads=4,
    )
    print(f"running on http://127.0.0.1:{server.effective_port}", file=sys.stderr, flush=True)
    server.run()


if __name__ == "__main__":
    main()
