"""Files of many formats as texts to translate, and what is around them."""
