"""Files of many formats, and texts with markup, as sentences to translate and what is around them."""
