//! Finding a command by its name.

use std::sync::LazyLock;

use marula_query::feature_version::FeatureVersion;

use super::{COMMANDS, Command};

/// Twice as many as there are names, or more; a power of two.
const SLOTS: usize = 512;

struct Slot {
    name: &'static str,
    index: usize,
}

static TABLE: LazyLock<Vec<Option<Slot>>> = LazyLock::new(|| {
    let mut table: Vec<Option<Slot>> = (0..SLOTS).map(|_| None).collect();
    for (index, command) in COMMANDS.iter().enumerate() {
        for &name in [command.name].iter().chain(command.aliases) {
            let mut at = place(name.as_bytes());
            while table[at].is_some() {
                at = (at + 1) % SLOTS;
            }
            table[at] = Some(Slot { name, index });
        }
    }
    assert!(table.iter().flatten().count() * 2 <= SLOTS, "the table has room for every name");
    table
});

/// The command that this name has in a release, and its index in [`COMMANDS`].
pub(crate) fn find(name: &[u8], version: FeatureVersion) -> Option<(usize, &'static Command)> {
    let mut at = place(name);
    while let Some(slot) = &TABLE[at] {
        if slot.name.as_bytes() == name {
            let command = COMMANDS[slot.index];
            return (command.since <= version).then_some((slot.index, command));
        }
        at = (at + 1) % SLOTS;
    }
    None
}

/// Length, first, middle and last byte tell command names apart well enough to need no hash of the
/// whole.
fn place(name: &[u8]) -> usize {
    let byte = |at: usize| usize::from(name.get(at).copied().unwrap_or(0));
    let mixed = name.len() * 7
        + byte(0) * 31
        + byte(name.len() / 2) * 131
        + byte(name.len().wrapping_sub(1)) * 523;
    mixed % SLOTS
}
