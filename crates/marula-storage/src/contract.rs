//! The tests that every engine passes.
