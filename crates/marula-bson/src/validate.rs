//! Checking that bytes from a client are a well-formed document.
