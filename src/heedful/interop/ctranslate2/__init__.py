"""CTranslate2: export of a bundle, and searching with its engine."""
