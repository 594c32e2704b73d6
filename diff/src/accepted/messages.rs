//! Differences in the words of errors, and in which of several is reported.

use marula_bson::Value;

use super::Accepted;
use super::looks::{count, mentions, messages};
use crate::case::failure;
use crate::tree::Tree;

pub(super) const ROWS: &[Accepted] = &[
    Accepted {
        words: "A projection that fails on a document fails as an \"Executor error\"",
        applies: |_, difference| {
            let [ours, theirs] = messages(difference).map(|text| {
                text.replace("while multiplanner was selecting best plan", "during find command")
                    .to_lowercase()
                    .replace("executor error", "error")
            });
            difference.class.starts_with("message") && ours == theirs
        },
    },
    Accepted {
        words: "The projection in the text of a planner's error (`Proj: …`)",
        applies: |_, difference| {
            let without = |text: String| -> Option<String> {
                let (before, rest) = text.split_once("\nProj: ")?;
                Some(before.to_owned() + rest.split_once('\n')?.1)
            };
            let [ours, theirs] = messages(difference);
            difference.class.starts_with("message")
                && theirs.contains("\nProj: {}\n")
                && ours.contains("$meta") == theirs.contains("$meta")
                && without(ours) == without(theirs)
        },
    },
    Accepted {
        words: "mongod shows its own inner form, such as `$convert` for `$toInt`",
        applies: |_, difference| {
            const REASON: &str = "planner returned error";
            let [ours, theirs] = messages(difference);
            let reason = |text: &String| text.split_once(REASON).map(|at| at.1.to_owned());
            difference.class.starts_with("message")
                && theirs.starts_with("error processing query: ")
                && theirs.contains("{ $convert: ")
                && reason(&theirs).is_some()
                && reason(&ours) == reason(&theirs)
        },
    },
    Accepted {
        words: "has the collection's collation in `originalSpec`",
        applies: |_, difference| {
            let front = |text: &String| text.split_once("originalSpec: ").map(|at| at.0.to_owned());
            let [ours, theirs] = messages(difference);
            difference.class == "message 67"
                && ours.contains("collation: {")
                && front(&ours).is_some_and(|ours| Some(ours) == front(&theirs))
        },
    },
    Accepted {
        words: "The document in an upsert's error is shown without the `_id` that another operator has just set",
        applies: |case, difference| {
            let [ours, theirs] = messages(difference);
            let is_without = |missing| {
                ours.split_once(missing).is_some_and(|(before, after)| {
                    let shown = theirs.strip_prefix(before).and_then(|at| at.strip_suffix(after));
                    shown.is_some_and(|shown| shown.starts_with("_id: "))
                })
            };
            difference.class.starts_with("message")
                && mentions(case, "upsert")
                && (is_without("no id") || is_without("INVALID-MUTABLE-ELEMENT"))
        },
    },
    Accepted {
        words: "A path with a part that begins with `$` in a query on such a collection finds nothing",
        applies: |case, difference| {
            difference.class == "code 0 for 16410" && case.kind == "collection"
        },
    },
    Accepted {
        words: "and texts of functions (`function() { return a }` for `a`)",
        applies: |case, difference| {
            let [ours, theirs] = difference.replies.clone().map(|mut reply| {
                reply.map_leaves(&|value| match value {
                    Value::Code(_) | Value::CodeWithScope { .. } => Some(Value::Null.to_buf()),
                    Value::Int32(number) => Some(Value::Double(f64::from(number)).to_buf()),
                    Value::Symbol(text) => Some(Value::String(text).to_buf()),
                    Value::DateTime(ms) if ms.unsigned_abs() > 8_640_000_000_000_000 => {
                        Some(Value::DateTime(0).to_buf())
                    }
                    _ => None,
                });
                reply
            });
            case.kind == "code" && difference.class == "results" && ours == theirs
        },
    },
    Accepted {
        words: "If several groups of a `mapReduce` cannot be merged or stored, another may be reported",
        applies: |case, difference| {
            case.kind == "code"
                && [
                    "code 51132 for 51185",
                    "code 51185 for 51132",
                    "code 52 for 53",
                    "code 53 for 52",
                ]
                .contains(&&*difference.class)
        },
    },
    Accepted {
        words: "`$$ROOT.a` is shown as `$a`",
        applies: |_, difference| {
            let [ours, theirs] = messages(difference);
            difference.class.starts_with("message") && ours == theirs.replace("$$ROOT.", "$")
        },
    },
    Accepted {
        words: "Texts of JavaScript's own errors differ",
        applies: |_, difference| difference.class == "message 139",
    },
    Accepted {
        words: "The number of these prefixes depends on the stages that mongod has combined",
        applies: |case, difference| {
            let steps = ["Failed to optimize expression", "Failed to optimize pipeline"];
            let without = |text: &String| {
                let steps = steps.map(|step| format!("{step} :: caused by :: "));
                steps.iter().fold(text.clone(), |text, step| text.replace(step, ""))
            };
            let [ours, theirs] = messages(difference);
            difference.class.starts_with("message")
                && ([&ours, &theirs]
                    .iter()
                    .all(|text| text.contains(steps[0]) || text.contains(steps[1]))
                    || case.kind == "applyOps")
                && without(&ours) == without(&theirs)
        },
    },
    Accepted {
        words: "The input document in an error of `$replaceRoot` contains the read fields as a whole",
        applies: |_, difference| {
            let [ours, theirs] = messages(difference);
            let before = |text: &str| {
                let text = text.replace("'replacement document'", "'newRoot' expression");
                text.split("Input document: ").next().map(str::to_owned)
            };
            ours.contains("Input document: ") && before(&ours) == before(&theirs)
        },
    },
    Accepted {
        words: "Bytes that are not UTF-8 are shown as U+FFFD in the text of an error",
        applies: |_, difference| {
            let [ours, theirs] = messages(difference);
            difference.class == "reply" && ours == theirs && ours.contains('\u{FFFD}')
        },
    },
    Accepted {
        words: "Of several constant expressions of a projection that fail, another may be reported",
        applies: |case, difference| {
            let shows = ["$project", "$addFields", "$set", "fields", "projection"];
            let mut are_several = false;
            let of_view = Tree::Array(case.view.to_vec());
            for part in [&case.command, &of_view] {
                part.walk(&mut |name, value| {
                    let calls = count(value, &|name| name.starts_with('$'));
                    are_several |= shows.contains(&name) && calls > 1;
                });
            }
            let codes = [&difference.replies[0], &difference.replies[1]].map(failure);
            let is_early = |(code, text): &(i32, String)| {
                let is_of_constants =
                    text.contains("Failed to optimize pipeline") || !text.contains("xecutor error");
                *code != 0 && is_of_constants
            };
            // Both are reported after the same words.
            let words = |text: &String| {
                text.rsplit_once(" :: caused by :: ").map(|(words, _)| words.to_owned())
            };
            let [ours, theirs] = messages(difference);
            let is_told = ["code", "message"].iter().any(|what| difference.class.starts_with(what));
            is_told && are_several && codes.iter().all(is_early) && words(&ours) == words(&theirs)
        },
    },
    Accepted {
        words: "Of two arrays in which such a number is ambiguous (16746), the other may be reported",
        applies: |_, difference| difference.class == "message 16746",
    },
    Accepted {
        words: "An error next to a `$rename` shows the document without the moved field",
        applies: |case, difference| difference.class == "message 28" && mentions(case, "$rename"),
    },
    Accepted {
        words: "The document in an upsert's error is shown without the `_id`",
        applies: |_, difference| {
            let [ours, theirs] = messages(difference);
            difference.class.starts_with("message")
                && ours.split("{no id}").next() == theirs.split("{_id: ").next()
                && ours.contains("{no id}")
        },
    },
    Accepted {
        words: "mongod cuts the text of an error of `applyOps` at the first NUL",
        applies: |case, difference| {
            let [ours, theirs] = messages(difference);
            case.kind == "applyOps"
                && difference.class.starts_with("message")
                && ours.split_once('\0').is_some_and(|(front, _)| front == theirs)
        },
    },
    Accepted {
        words: "An `_id` that is generated for an upsert differs between servers, in messages too",
        applies: |case, difference| {
            let without_ids = |text: &str| {
                let words = text.split(' ').map(|word| match word.len() {
                    24 if word.bytes().all(|byte| byte.is_ascii_hexdigit()) => "<id>",
                    _ => word,
                });
                words.collect::<Vec<_>>().join(" ")
            };
            let [ours, theirs] = messages(difference);
            count(&case.command, &|name| name == "upsert") > 0
                && without_ids(&ours) == without_ids(&theirs)
                && without_ids(&ours).contains("<id>")
        },
    },
    Accepted {
        words: "in which mistake is reported of a hole that has a corner on the outer ring",
        applies: |case, difference| {
            let mistakes = ["Secondary loops not contained by first", "Polygon isn't valid"];
            let found = messages(difference)
                .map(|text| mistakes.iter().position(|mistake| text.contains(mistake)));
            case.kind == "place"
                && difference.class == "message 2"
                && found.iter().all(Option::is_some)
                && found[0] != found[1]
        },
    },
    Accepted {
        words: "A second `window` of a window function that is no document is rejected as a first one is",
        applies: |_, difference| {
            let [ours, theirs] = messages(difference);
            difference.class == "code 9 for 8"
                && ours.contains("'window' field must be an object")
                && theirs.contains("assertion src/")
        },
    },
    Accepted {
        words: "The message of a query that cannot be planned shows the filter in Marula's form",
        applies: |_, difference| {
            // The form stands between these words.
            let around = |text: &String| {
                let (front, rest) = text.split_once("Tree: ")?;
                let (_, back) = rest.rsplit_once("Sort: {")?;
                Some((front.to_owned(), back.to_owned()))
            };
            let [ours, theirs] = messages(difference);
            difference.class.starts_with("message")
                && ours.contains("error processing query: ")
                && around(&ours).is_some()
                && around(&ours) == around(&theirs)
        },
    },
    Accepted {
        words: "After a `$densify` it shows no projection",
        applies: |case, difference| {
            let without = |text: &String| {
                let (front, rest) = text.split_once("\nProj: ")?;
                let (_, back) = rest.split_once('\n')?;
                Some((front.to_owned(), back.to_owned()))
            };
            let [ours, theirs] = messages(difference);
            difference.class.starts_with("message")
                && count(&case.command, &|name| name == "$densify") > 0
                && without(&ours).is_some()
                && without(&ours) == without(&theirs)
        },
    },
    Accepted {
        words: "A result that is nested more than 200 levels deep is returned",
        applies: |_, difference| {
            difference.class == "code 0 for 15"
                && messages(difference)[1].contains("cannot convert document to BSON")
        },
    },
];
