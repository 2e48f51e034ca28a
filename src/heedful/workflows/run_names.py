"""Names of the files and directories of a run."""

CONFIG, LOG, LOCK = "config.toml", "log.jsonl", ".lock"
SKIPPED, SKIPPED_HEADER = "skipped.tsv", "step\tpair\tsource\ttarget"
CHECKPOINTS, TOKENIZER = "checkpoints", "tokenizer"
BUNDLES = BEST, LAST = ("best", "last")
