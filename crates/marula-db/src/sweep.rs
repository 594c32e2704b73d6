//! The time to remove the entries of a list that are over: nothing else removes those of clients
//! that have given up, and a search at each addition would cost the square of their number.

/// The number of entries from which on a list is searched.
const KEPT: usize = 64;

/// Returns whether a list with this number of entries is to be searched before the next is added:
/// each time that it has doubled.
pub fn is_due(entries: usize) -> bool {
    entries >= KEPT && entries.is_power_of_two()
}
