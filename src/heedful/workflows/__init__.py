"""One function for each verb: the only place where training meets decoding. Nothing here prints."""
