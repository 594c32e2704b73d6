//! Updates, replayed as a real server answered them.
