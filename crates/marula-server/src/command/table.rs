//! The hash table that finds a command by its name.

use std::sync::LazyLock;

use marula_query::feature_version::FeatureVersion;

use super::{COMMANDS, Command};

/// At least twice the number of names; a power of two.
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

/// Returns the command of this name, and its index in [`COMMANDS`]; `None` for a command that is
/// newer than `version`.
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

/// Returns the first slot for a name. The length and the first, middle and last byte distinguish
/// command names well enough; hashing the whole name is not necessary.
fn place(name: &[u8]) -> usize {
    let byte = |at: usize| usize::from(name.get(at).copied().unwrap_or(0));
    let mixed = name.len() * 7
        + byte(0) * 31
        + byte(name.len() / 2) * 131
        + byte(name.len().wrapping_sub(1)) * 523;
    mixed % SLOTS
}
