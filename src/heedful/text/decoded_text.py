"""Clean up detokenised text."""

# The replacements of transformers' clean_up_tokenization.
_JOINED = (
    *((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'")),
    *((" n't", "n't"), (" 'm", "'m"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re")),
)


def clean_up_tokenization(text: str) -> str:
    """Remove the spaces before punctuation and English contractions.

    >>> clean_up_tokenization("do n't , please !")
    "don't, please!"
    """
    for apart, joined in _JOINED:
        text = text.replace(apart, joined)
    return text
