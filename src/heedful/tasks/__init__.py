"""What a user asks for, a module each: train, translate, evaluate, import, export; and the files of a run."""
