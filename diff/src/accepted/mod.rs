//! Known differences that stay: each is a sentence of docs/differences.md.
//!
//! Those caused by the order in which stages are executed are in `rearranged`.

mod collections;
mod indexes;
pub(crate) mod looks;
mod messages;
mod numbers;
mod pipelines;
mod queries;

use crate::case::Case;
use crate::compare::Difference;

/// An explained difference.
pub(crate) struct Accepted {
    /// The words of docs/differences.md that describe it.
    pub(crate) words: &'static str,
    /// Returns whether a reduced case shows this difference and no other.
    pub(crate) applies: fn(&Case, &Difference) -> bool,
}

/// All of them. The words of the first row that applies are reported.
pub(crate) fn accepted() -> impl Iterator<Item = &'static Accepted> {
    [
        pipelines::ROWS,
        queries::ROWS,
        collections::ROWS,
        indexes::ROWS,
        messages::ROWS,
        numbers::ROWS,
    ]
    .into_iter()
    .flatten()
}

/// Returns the words of the first row that matches a difference.
pub(crate) fn accepted_as<'r>(
    rows: impl IntoIterator<Item = &'r Accepted>,
    case: &Case,
    difference: &Difference,
) -> Option<&'static str> {
    rows.into_iter().find(|row| (row.applies)(case, difference)).map(|row| row.words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rearranged::REARRANGED;
    use crate::two_mistakes;

    #[test]
    fn each_is_in_the_docs() {
        let page = include_str!("../../../docs/differences.md");
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for accepted in accepted().chain(REARRANGED) {
            assert!(flat(page).contains(&flat(accepted.words)), "{}", accepted.words);
        }
        assert!(flat(page).contains(two_mistakes::WORDS));
        assert!(flat(page).contains(crate::CONSEQUENCE));
        assert!(flat(page).contains(crate::ENDS_MONGOD));
    }
}
