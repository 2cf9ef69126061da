"""Record batches v2 (KIP-98): view, validate, patch in place, build, iterate; the codecs. Older formats are not read."""
