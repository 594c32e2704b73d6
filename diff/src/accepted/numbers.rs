//! Differences in the last digits of numbers, and at the ends of their ranges.

use marula_bson::Value;

use super::Accepted;
use super::looks::{commands, count, holds, mentions, messages, nearly_equal, without_numbers};
use crate::shell;

pub(super) const ROWS: &[Accepted] = &[
    Accepted {
        words: "A sum of numbers beyond 2^53 that nearly cancel out is exact",
        applies: |case, difference| {
            const EXACT_END: f64 = 9_007_199_254_740_992.0;
            let is_large =
                |value: Value<'_>| value.as_f64().is_some_and(|number| number.abs() > EXACT_END);
            let has_large = holds(case, &is_large);
            let [ours, theirs] = difference.replies.clone().map(without_numbers);
            let is_sum = |name: &str| matches!(name, "$sum" | "$avg" | "$add");
            let sums = commands(case).any(|one| count(one, &is_sum) > 0);
            // Documents may match by the sum.
            let is_condition = mentions(case, "$expr");
            difference.class == "results" && has_large && sums && (ours == theirs || is_condition)
        },
    },
    Accepted {
        words: "A date within a day of either end of the range, in a time zone",
        applies: |_, difference| {
            difference.class == "code 5166406 for 0"
                && messages(difference)[0].contains("overflowed")
        },
    },
    Accepted {
        words: "the last bits of deviations and covariances may differ",
        applies: |case, difference| {
            let names =
                ["$stdDevPop", "$stdDevSamp", "$covariancePop", "$covarianceSamp", "$sum", "$avg"];
            let [ours, theirs] = difference.replies.clone().map(without_numbers);
            difference.class == "results"
                && count(&case.command, &|name| name == "$setWindowFields") > 0
                && count(&case.command, &|name| names.contains(&name)) > 0
                && ours == theirs
        },
    },
    Accepted {
        words: "The last of the 34 digits of decimal logarithms, powers and trigonometry may differ",
        applies: |_, difference| {
            let [ours, theirs] = &difference.replies;
            let [our_text, their_text] = messages(difference);
            let digits = our_text.rsplit(|part: char| !part.is_ascii_digit()).next();
            let is_in_text = digits.is_some_and(|digits| digits.len() >= 30)
                && our_text.len() == their_text.len()
                && our_text.get(..our_text.len().saturating_sub(2))
                    == their_text.get(..their_text.len().saturating_sub(2));
            match difference.class.as_str() {
                "results" => nearly_equal(ours, theirs),
                class => class.starts_with("message") && is_in_text,
            }
        },
    },
    Accepted {
        words: "The last bit of a double's hyperbolic function may differ",
        applies: |case, difference| {
            let names = ["$acosh", "$asinh", "$atanh", "$cosh", "$sinh", "$tanh"];
            let [ours, theirs] = &difference.replies;
            difference.class == "results"
                && count(&case.command, &|name| names.contains(&name)) > 0
                && nearly_equal(ours, theirs)
        },
    },
    Accepted {
        words: "The distance of a point on the edge of a shape is zero",
        applies: |case, difference| {
            // In radians: a millionth of a micrometre.
            const NOTHING: f64 = 1e-16;
            let [ours, theirs] = difference.replies.clone().map(|mut reply| {
                reply.map_leaves(&|value| match value {
                    Value::Double(number) if number.abs() < NOTHING => {
                        Some(Value::Double(0.0).to_buf())
                    }
                    _ => None,
                });
                reply
            });
            case.kind == "place" && difference.class == "results" && ours == theirs
        },
    },
    Accepted {
        words: "The sign of a NaN that is not the result of a sum",
        applies: |_, difference| {
            let [ours, theirs] = [0, 1].map(|side| shell::value(&difference.replies[side]));
            let [our_text, their_text] =
                messages(difference).map(|text| text.replace("-nan", "nan"));
            difference.class == "results" && ours == theirs && ours.contains("NaN")
                || difference.class.starts_with("message") && our_text == their_text
        },
    },
    Accepted {
        words: "An int that `$round` makes too large for 32 bits becomes a long",
        applies: |case, difference| {
            difference.class == "results" && case.operators().contains("$round")
        },
    },
];
