"""Ten sentence pairs, and the settings with which a tiny model learns them by heart in seconds."""

from pathlib import Path

ENGLISH = (
    "The ferry leaves at a quarter past six.",
    "Nobody had told the new neighbours about the stairs.",
    "If it rains tomorrow, we will stay at home and bake bread.",
    "Her brother repairs old clocks in a shop behind the station.",
    "Please close the window before you leave.",
    "The children have been waiting for the bus for half an hour.",
    "I would rather drink tea than coffee.",
    "Which of these roads leads to the lake?",
    "The letter that you sent me never arrived.",
    "He forgot his umbrella again.",
)
GERMAN = (
    "Die Fähre legt um Viertel nach sechs ab.",
    "Niemand hatte den neuen Nachbarn von der Treppe erzählt.",
    "Wenn es morgen regnet, bleiben wir zu Hause und backen Brot.",
    "Ihr Bruder repariert alte Uhren in einem Laden hinter dem Bahnhof.",
    "Bitte schließen Sie das Fenster, bevor Sie gehen.",
    "Die Kinder warten seit einer halben Stunde auf den Bus.",
    "Ich trinke lieber Tee als Kaffee.",
    "Welche dieser Straßen führt zum See?",
    "Der Brief, den Sie mir geschickt haben, ist nie angekommen.",
    "Er hat schon wieder seinen Regenschirm vergessen.",
)


def write_pairs(directory: Path) -> list[str]:
    """Write both sides as files and return the arguments that train a tiny model on them, on one thread."""
    for name, lines in (("ten.en", ENGLISH), ("ten.de", GERMAN)):
        (directory / name).write_text("\n".join([*lines, ""]), encoding="utf-8")
    settings = {
        "data.cache_dir": directory / "cache",
        "tokenizer.vocab_size": 200,
        "model.num_encoder_layers": 2,
        "model.num_decoder_layers": 2,
        "schedule.warmup_steps": 20,
        "optimizer.name": "adam",  # Muon leaves one of ten pairs in some precisions after so few steps
        "schedule.peak": 0.003,
        "train.threads": 1,
    }
    files = ["--src", directory / "ten.en", "--tgt", directory / "ten.de"]
    return [*map(str, files), "--preset", "tiny", *as_options(settings)]


def write_sides(**lines: int) -> None:
    """Write the first of the pairs into NAME.en and NAME.de of the current directory, as many as it says."""
    for side, text in (("en", ENGLISH), ("de", GERMAN)):
        for name, number in lines.items():
            Path(f"{name}.{side}").write_text("\n".join([*text[:number], ""]), encoding="utf-8")


def as_options(settings: dict[str, object]) -> list[str]:
    """Turn settings into `--set` options."""
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
