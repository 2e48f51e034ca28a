"""One function for each verb: the only package where training meets decoding. Nothing here prints."""
