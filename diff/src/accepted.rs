//! Differences that are known and stay: each is a sentence of docs/differences.md.

use crate::case::Case;
use crate::compare::Difference;

/// A difference that is explained.
pub(crate) struct Accepted {
    /// Words of docs/differences.md that say it.
    pub(crate) words: &'static str,
    /// Whether a shrunk case shows this difference and nothing else.
    pub(crate) applies: fn(&Case, &Difference) -> bool,
}

pub(crate) const ACCEPTED: &[Accepted] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_in_the_docs() {
        let page = include_str!("../../docs/differences.md");
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for accepted in ACCEPTED {
            assert!(flat(page).contains(&flat(accepted.words)), "{}", accepted.words);
        }
    }
}
