"""One file for each view. Each registers its addresses with `register(sampler)`."""
