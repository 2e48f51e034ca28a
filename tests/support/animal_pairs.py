"""Sentences of a small grammar: a tiny model knows a few by heart, and learns the others in seconds."""

from itertools import product

NOUNS = {"cat": "die Katze", "cow": "die Kuh", "goat": "die Ziege", "duck": "die Ente", "bee": "die Biene"}
VERBS = {"sees": "sieht", "hears": "hört", "likes": "mag", "knows": "kennt", "feeds": "füttert"}
PAIRS = [
    (f"the {who} {does} the {whom} .", f"{NOUNS[who]} {VERBS[does]} {NOUNS[whom]} .")
    for who, does, whom in product(NOUNS, VERBS, NOUNS)
]
KNOWN = tuple(PAIRS[::17])  # what the model has learned before
QUICK = {
    "train.max_steps": 120,
    "train.threads": 1,
    "train.processes": 1,
    "train.ema_decay": 0.0,
    "schedule.peak": 3e-3,
    "valid.every_steps": 60,
    "valid.patience": 0,
    "data.cache_dir": "cache",
}
