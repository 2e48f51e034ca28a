"""Clean up detokenised text."""

# Spaces that tokenizers of running text put before these signs (transformers' clean_up_tokenization).
_CLOSED_UP = (
    *((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'")),
    *((" n't", "n't"), (" 'm", "'m"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re")),
)


def close_up_spaces(text: str) -> str:
    """Remove the spaces before punctuation and English contractions, as transformers does where asked to.

    >>> close_up_spaces("do n't , please !")
    "don't, please!"
    """
    for apart, together in _CLOSED_UP:
        text = text.replace(apart, together)
    return text
