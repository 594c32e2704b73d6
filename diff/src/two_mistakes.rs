//! Commands with two mistakes, of which each server reports another one.
//!
//! The order in which a server checks a command is specified nowhere. A difference is only one of
//! order if the servers agree on each mistake alone: one simplification of the case leaves the
//! error that Marula reported, on both servers, and another leaves mongod's.

use marula_bson::DocBuf;

use crate::case::{Case, failure};
use crate::compare::{Difference, compare, failure_shown};
use crate::shrink::candidates;

/// The words of docs/differences.md that describe such a difference.
pub(crate) const WORDS: &str = "Of two mistakes in one command, the other may be reported";

/// The maximum number of simplifications that are tried.
const TRIES_MAX: usize = 500;

/// Returns whether the case has two mistakes on which both servers agree. `answers` runs a case on
/// both.
pub(crate) fn has_two_mistakes<E>(
    case: &Case,
    difference: &Difference,
    answers: &mut dyn FnMut(&Case) -> Result<[Vec<DocBuf>; 2], E>,
) -> Result<bool, E> {
    let reported = difference.replies.each_ref().map(failure);
    if reported[0] == reported[1] || reported.iter().any(|(code, _)| *code == 0) {
        return Ok(false);
    }
    // The effects must be the same: the replies after the different one show them.
    let [ours, theirs] = answers(case)?;
    let is_different = |(ours, theirs): (&DocBuf, &DocBuf)| {
        compare(case, [std::slice::from_ref(ours), std::slice::from_ref(theirs)], false).is_some()
    };
    if ours.iter().zip(&theirs).filter(|replies| is_different(*replies)).count() != 1 {
        return Ok(false);
    }
    let mut agreed = [false; 2];
    for simpler in candidates(case).iter().filter(|case| case.is_askable()).take(TRIES_MAX) {
        let [ours, theirs] = answers(simpler)?;
        if compare(simpler, [&ours, &theirs], false).is_some_and(is_other_mistake) {
            continue;
        }
        let failures: Vec<_> =
            ours.iter().chain(&theirs).map(|reply| failure_shown(simpler, reply)).collect();
        for (agreed, reported) in agreed.iter_mut().zip(&reported) {
            *agreed |= failures.contains(reported);
        }
        if agreed == [true; 2] {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether a difference is more than the words of JavaScript's own errors.
fn is_other_mistake(difference: Difference) -> bool {
    difference.class != "message 139"
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::tree::{Tree, tree};

    fn case(command: Tree) -> Case {
        Case {
            kind: "find",
            documents: Rc::default(),
            others: Rc::default(),
            indexes: Rc::default(),
            view: Rc::default(),
            steps: Rc::default(),
            command,
        }
    }

    fn error(code: i32) -> DocBuf {
        tree! { "ok" => Tree::of(0.0), "errmsg" => "mistake", "code" => code }.to_doc()
    }

    /// Two servers that look for the mistakes `a` (1) and `b` (2), in opposite orders; the second
    /// one knows `c` (3) besides.
    fn check(command: Tree, expected: bool) {
        let mistakes = |case: &Case| -> [Vec<i32>; 2] {
            let has = |name: &str| case.command.get(name).is_some();
            let found = |order: [(&str, i32); 3]| {
                let found = order.into_iter().filter(|(name, _)| has(name));
                found.map(|(_, code)| code).collect()
            };
            [found([("a", 1), ("b", 2), ("none", 0)]), found([("c", 3), ("b", 2), ("a", 1)])]
        };
        let reply = |codes: Vec<i32>| {
            vec![
                codes.first().map_or(tree! { "ok" => Tree::of(1.0) }.to_doc(), |code| error(*code)),
            ]
        };
        let mut answers = |case: &Case| Ok::<_, ()>(mistakes(case).map(reply));
        let case = case(command);
        let [ours, theirs] = answers(&case).unwrap();
        let difference = compare(&case, [&ours, &theirs], false).unwrap();
        assert_eq!(has_two_mistakes(&case, &difference, &mut answers), Ok(expected));
    }

    #[test]
    fn both_servers_know_each_mistake() {
        check(tree! { "find" => "c", "a" => 1, "b" => 1 }, true);
    }

    #[test]
    fn one_server_knows_a_mistake_that_the_other_does_not() {
        check(tree! { "find" => "c", "a" => 1, "c" => 1 }, false);
        check(tree! { "find" => "c", "c" => 1 }, false);
    }
}
