"""Work on much text: shards and documents, resumable, here or on Ray."""
