//! Key strings: bytes that compare as the values do.
