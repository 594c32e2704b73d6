//! The growth of an array by the steps of a `$reduce`: each puts other elements before or after
//! those of `$$value`.
//!
//! Written again for each step, an array of a thousand elements costs a million copies. So added
//! elements are kept apart from it. They are put into the array at the end, and before a step that
//! reads `$$value`, such as one that adds only elements that are not in it yet: at the array's
//! end, which needs no copy of the others.

use std::borrow::Cow;

use marula_bson::{ArrayWriter, Doc, Value};
use marula_error::Result;

use super::array::concatenated;
use super::reduce::BYTES_MAX;
use super::variable::bind_all;
use crate::expression::frame::{ARENA_BYTES_MAX, value_too_large};
use crate::expression::{Arena, Call, Expression, Frame, Variable};
use crate::meter;

/// The steps of a `$reduce` that return `$$value` with other elements before or after its own.
pub(super) struct Growth<'e> {
    step: Step<'e>,
    /// Whether a step reads `$$value` to know what to add.
    reads: bool,
}

/// A part of a step that returns `$$value` with other elements.
enum Step<'e> {
    Same,
    Concat { before: &'e [Expression], inner: Box<Step<'e>>, after: &'e [Expression] },
    Cond { condition: &'e Expression, then: Box<Step<'e>>, other: Box<Step<'e>> },
    Let { vars: &'e [Expression], body: Box<Step<'e>> },
}

impl<'e> Growth<'e> {
    /// The growth by a step; `None` if it is of another kind.
    pub(super) fn of(step: &'e Expression) -> Option<Growth<'e>> {
        let mut reads = false;
        let step = Step::of(step, 0, &mut reads)?;
        Some(Growth { step, reads })
    }

    /// Returns a list that has grown by the steps for these items; `None` after a step whose result
    /// is null.
    pub(super) fn of_list<'a>(
        &self,
        list: Doc<'a>,
        items: &mut impl Iterator<Item = Value<'a>>,
        frame: &Frame<'a>,
    ) -> Result<Option<Value<'a>>>
    where
        'e: 'a,
    {
        let mut growing = Growing::new(list);
        loop {
            // The values of the steps are not kept.
            let arena = Arena::new();
            let this = frame.moved_to(&arena).bind(None);
            let both = this.bind(None);
            while arena.size() < BYTES_MAX {
                let Some(item) = items.next() else {
                    return growing.joined(frame.arena).map(|list| Some(Value::Array(list)));
                };
                meter::spend(meter::ELEMENT)?;
                let is_array = if self.reads {
                    growing.settle()?;
                    let list = Value::Array(Doc::trusted(&growing.list));
                    let both = frame.moved_to(&arena).bind(Some(item)).bind(Some(list));
                    self.step.run(&both, &mut growing.added)?
                } else {
                    this.rebind(Some(item));
                    self.step.run(&both, &mut growing.added)?
                };
                if !is_array {
                    return Ok(None);
                }
            }
        }
    }
}

impl<'e> Step<'e> {
    /// Notes whether the step reads `$$value`, which is `up` bindings outside the innermost one,
    /// beyond returning it.
    fn of(step: &'e Expression, up: usize, reads: &mut bool) -> Option<Step<'e>> {
        let Call { operator, args } = match step {
            Expression::Variable(Variable::Bound { up: own, .. }, path) => {
                return (*own == up && path.is_empty()).then_some(Step::Same);
            }
            Expression::Call(call) => call,
            _ => return None,
        };
        match operator.name {
            "$concatArrays" => {
                let inner = |(at, arg)| Some((at, Step::of(arg, up, reads)?));
                let (at, inner) = args.iter().enumerate().find_map(inner)?;
                let (before, after) = (&args[..at], &args[at + 1..]);
                *reads |= before.iter().chain(after).any(reads_value);
                Some(Step::Concat { before, inner: Box::new(inner), after })
            }
            "$cond" => {
                let [condition, then, other] = &args[..] else { return None };
                let then = Box::new(Step::of(then, up, reads)?);
                let other = Box::new(Step::of(other, up, reads)?);
                *reads |= reads_value(condition);
                Some(Step::Cond { condition, then, other })
            }
            "$let" => {
                let (body, vars) = args.split_first()?;
                let body = Box::new(Step::of(body, up + vars.len() / 2, reads)?);
                *reads |= vars.iter().any(reads_value);
                Some(Step::Let { vars, body })
            }
            _ => None,
        }
    }

    /// Takes the step; returns whether its result is an array, not null.
    fn run<'s>(&self, frame: &Frame<'s>, added: &mut Added) -> Result<bool>
    where
        'e: 's,
    {
        match self {
            Step::Same => Ok(true),
            Step::Cond { condition, then, other } => {
                meter::spend(meter::CALL)?;
                let chosen = if condition.eval_truth(frame)? { then } else { other };
                chosen.run(frame, added)
            }
            Step::Let { vars, body } => {
                meter::spend(meter::CALL)?;
                body.run(&bind_all(vars, frame)?, added)
            }
            Step::Concat { before, inner, after } => {
                meter::spend(meter::CALL)?;
                let mut parts = Vec::new();
                for arg in *before {
                    let Some(part) = concatenated(arg, frame)? else { return Ok(false) };
                    parts.push(part);
                }
                if !inner.run(frame, added)? {
                    return Ok(false);
                }
                for arg in *after {
                    let Some(part) = concatenated(arg, frame)? else { return Ok(false) };
                    added.put_after(part)?;
                }
                parts.into_iter().rev().try_for_each(|part| added.put_before(part))?;
                Ok(true)
            }
        }
    }
}

/// Returns whether an expression may read `$$value`: whether it reads a variable with that name.
fn reads_value(expression: &Expression) -> bool {
    let mut reads = matches!(
        expression,
        Expression::Variable(Variable::Bound { name, .. }, _) if **name == *"value"
    );
    expression.for_each_child(&mut |child| reads = reads || reads_value(child));
    reads
}

/// An array, and the arrays that steps have put before and after it.
struct Growing<'a> {
    list: Cow<'a, [u8]>,
    /// The number of elements of the list, if it has been counted.
    count: Option<usize>,
    added: Added,
}

/// Arrays that go before or after another one.
struct Added {
    /// The arrays, one after the other.
    bytes: Vec<u8>,
    /// Where those begin that go before it, the first of them next to it.
    before: Vec<usize>,
    /// Where those begin that go after it.
    after: Vec<usize>,
    /// The size of the array of all, which counts one digit of each name.
    size: usize,
}

impl<'a> Growing<'a> {
    fn new(list: Doc<'a>) -> Self {
        let (list, size) = (Cow::Borrowed(list.as_bytes()), list.as_bytes().len());
        let added = Added { bytes: Vec::new(), before: Vec::new(), after: Vec::new(), size };
        Growing { list, count: None, added }
    }

    /// Puts what came to the list into it.
    fn settle(&mut self) -> Result<()> {
        if self.added.bytes.is_empty() {
            return Ok(());
        }
        let list = if self.added.before.is_empty() {
            let mut list = std::mem::take(&mut self.list).into_owned();
            let count = self.count.unwrap_or_else(|| Doc::trusted(&list).iter().count());
            meter::reserve(&mut list, self.added.bytes.len())?;
            let mut writer = ArrayWriter::resumed(&mut list, count);
            for part in self.added.parts_after() {
                writer.push_elements(&mut part.iter(), usize::MAX);
            }
            self.count = Some(writer.count());
            writer.finish();
            list
        } else {
            let arena = Arena::new();
            self.count = None;
            self.joined(&arena)?.as_bytes().to_vec()
        };
        self.list = Cow::Owned(list);
        self.added.bytes.clear();
        self.added.before.clear();
        self.added.after.clear();
        Ok(())
    }

    /// The array with the elements of all.
    fn joined<'v>(&self, arena: &'v Arena) -> Result<Doc<'v>>
    where
        'a: 'v,
    {
        match &self.list {
            Cow::Borrowed(list) if self.added.bytes.is_empty() => Ok(Doc::trusted(list)),
            list => {
                let before = self.added.parts_before();
                let parts = before.chain([Doc::trusted(list)]).chain(self.added.parts_after());
                arena.array_of_arrays(&parts.collect::<Vec<_>>())
            }
        }
    }
}

impl Added {
    fn put_before(&mut self, part: Doc<'_>) -> Result<()> {
        let start = self.keep(part)?;
        self.before.push(start);
        Ok(())
    }

    fn put_after(&mut self, part: Doc<'_>) -> Result<()> {
        let start = self.keep(part)?;
        self.after.push(start);
        Ok(())
    }

    /// Keeps an array; returns where it begins.
    fn keep(&mut self, part: Doc<'_>) -> Result<usize> {
        const FRONT_BYTES: usize = 3;
        for element in part {
            meter::spend(meter::ELEMENT)?;
            self.size += FRONT_BYTES + element.value.bytes().len();
        }
        if self.size > ARENA_BYTES_MAX {
            return Err(value_too_large(self.size));
        }
        let start = self.bytes.len();
        meter::reserve(&mut self.bytes, part.as_bytes().len())?;
        self.bytes.extend_from_slice(part.as_bytes());
        Ok(start)
    }

    /// The arrays before, in the order of their elements.
    fn parts_before(&self) -> impl Iterator<Item = Doc<'_>> {
        self.before.iter().rev().map(|&start| self.part(start))
    }

    fn parts_after(&self) -> impl Iterator<Item = Doc<'_>> {
        self.after.iter().map(|&start| self.part(start))
    }

    /// The array that begins here.
    fn part(&self, start: usize) -> Doc<'_> {
        let rest = &self.bytes[start..];
        let length = rest.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
        Doc::trusted(&rest[..length])
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::{ValueBuf, ext_json};

    use super::*;
    use crate::context::Context;
    use crate::expression::Scope;

    /// Each step must give the same as one that hides how it uses `$$value`, and so computes the
    /// array each time.
    #[test]
    fn a_growing_array_has_the_elements_of_arrays_that_are_written_for_each_step() {
        let long = (0..40_000).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let document = format!(r#"{{"a": [1, 2, 3, 4], "b": [7, 8], "long": [{long}]}}"#);
        let document = ext_json::parse(&document).unwrap();
        let steps = [
            r#"{"$concatArrays": [VALUE, ["$$this"]]}"#,
            r#"{"$concatArrays": [["$$this", 0], VALUE]}"#,
            r#"{"$concatArrays": [["$$this"], "$b", VALUE, "$b", [["$$this"]]]}"#,
            r#"{"$concatArrays": ["$b", {"$concatArrays": [["$$this"], VALUE, "$b"]}, [5]]}"#,
            r#"{"$cond": [{"$gt": ["$$this", 2]}, {"$concatArrays": [VALUE, ["$$this"]]}, VALUE]}"#,
            r#"{"$cond": [{"$eq": ["$$this", 3]}, {"$concatArrays": [VALUE, "$missing"]},
                {"$concatArrays": [["$$this"], VALUE]}]}"#,
            r#"{"$concatArrays": [VALUE, {"$map": {"input": "$b", "in": ["$$this"]}}]}"#,
            r#"{"$concatArrays": [VALUE, {"$cond": [{"$eq": ["$$this", 3]}, "text", []]}]}"#,
            r#"{"$concatArrays": [VALUE, [{"$add": ["$$this", {"$size": "$$value"}]}]]}"#,
            r#"{"$cond": [{"$in": ["$$this", "$$value"]}, VALUE, {"$concatArrays": [VALUE, ["$$this"]]}]}"#,
            r#"{"$concatArrays": [{"$slice": ["$$value", -1]}, VALUE, "$b", ["$$this"]]}"#,
            r#"{"$concatArrays": [VALUE, "$$value"]}"#,
            r#"{"$let": {"vars": {"x": {"$last": "$$value"}, "y": "$$this"},
                "in": {"$concatArrays": [VALUE, ["$$x", "$$y"], {"$let": {"vars": {"value": [5]}, "in": "$$value"}}]}}}"#,
            r#"{"$let": {"vars": {"value": ["$$this"]}, "in": VALUE}}"#,
            "VALUE",
        ];
        let inputs = ["$a", "$b", "$missing"];
        let initials = ["[]", r#"["x", "y"]"#, r#""$b""#, "null", r#""text""#];
        let context = Context::default();
        for step in steps {
            for input in inputs {
                for initial in initials {
                    let evaluated = |value: &str| {
                        let step = step.replace("VALUE", value);
                        evaluated(input, initial, &step, document.as_doc(), &context)
                    };
                    let (kept, written) = (r#""$$value""#, r#"{"$ifNull": ["$$value", null]}"#);
                    assert_eq!(evaluated(kept), evaluated(written), "{input} {initial} {step}");
                }
            }
        }
        let step =
            r#"{"$concatArrays": ["$$value", [{"$concat": ["x", {"$toString": "$$this"}]}]]}"#;
        let evaluated = evaluated("$long", "[]", step, document.as_doc(), &context).unwrap();
        let Some(Value::Array(items)) = evaluated.as_ref().map(ValueBuf::get) else { panic!() };
        assert_eq!(items.values().count(), 40_000);
        assert_eq!(items.values().last(), Some(Value::from("x39999")));
    }

    fn evaluated(
        input: &str,
        initial: &str,
        step: &str,
        document: Doc<'_>,
        context: &Context,
    ) -> std::result::Result<Option<ValueBuf>, String> {
        let spec = format!(
            r#"{{"$reduce": {{"input": "{input}", "initialValue": {initial}, "in": {step}}}}}"#
        );
        let spec = ext_json::parse(&spec).unwrap();
        let spec = Value::Document(spec.as_doc());
        let parsed = Expression::parse(spec, &mut Scope::new(context)).unwrap();
        let arena = Arena::new();
        let value = parsed.eval(&Frame::new(document, &arena, context));
        value.map(|value| value.map(|value| value.to_buf())).map_err(|error| error.to_string())
    }
}
