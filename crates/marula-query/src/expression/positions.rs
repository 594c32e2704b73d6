//! Where the elements of arrays begin. An array is bytes, so that its elements are found one after
//! the other; an expression that reads or searches an array for each of its elements would read it
//! as often as it has elements.

use std::cell::{Cell, RefCell};

use hashbrown::{DefaultHashBuilder, HashTable};
use marula_bson::{Collator, Doc, Value, doc::Iter, order};
use marula_error::Result;

use super::notes::Notes;
use super::set;
use crate::meter;

/// The position up to which an array is read from its start.
const NEAR: usize = 16;
/// The number of reads by position from which on the starts of an array's elements are noted.
const READS_MIN: u32 = 2;
/// The size of an array up to which it is searched from its start.
const SHORT_BYTES: usize = 128;
/// The number of searches from which on the values of an array are noted: noting them costs as much
/// as a few searches.
const SEARCHES_MIN: u32 = 8;
/// The size of an array up to which its elements are noted.
const ARRAY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The arrays that an evaluation has read by position, and those that it has searched.
#[derive(Default)]
pub(super) struct Positions {
    /// The number of the evaluation.
    evaluation: Cell<u64>,
    /// The start of each element.
    starts: RefCell<Notes<Vec<u32>>>,
    firsts: RefCell<Notes<Firsts>>,
}

impl Positions {
    /// Begins another evaluation.
    pub(super) fn forget(&self) {
        self.evaluation.set(self.evaluation.get() + 1);
    }

    /// The elements of an array from a position on.
    ///
    /// Errors: the server is short of memory.
    pub(super) fn elements_from<'a>(&self, items: Doc<'a>, at: usize) -> Result<Iter<'a>> {
        Ok(match self.start_of(items, at)? {
            Some(start) => Iter::over(items.elements_bytes().get(start..).unwrap_or_default()),
            None => {
                let mut elements = items.iter();
                if at > 0 {
                    elements.nth(at - 1);
                }
                elements
            }
        })
    }

    /// Returns where an element begins, if that is noted: the end of the array if it has no such
    /// element.
    fn start_of(&self, items: Doc<'_>, at: usize) -> Result<Option<usize>> {
        let bytes = items.elements_bytes();
        if at < NEAR || bytes.len() > ARRAY_BYTES_MAX {
            return Ok(None);
        }
        let mut starts = self.starts.borrow_mut();
        let starts = starts.of(self.evaluation.get(), bytes, READS_MIN, starts_of)?;
        Ok(starts.map(|starts| starts.get(at).map_or(bytes.len(), |&start| start as usize)))
    }

    /// Returns the position of the first element that equals the wanted value, if that is noted.
    ///
    /// Errors: the server is short of memory.
    pub(super) fn first(
        &self,
        items: Doc<'_>,
        wanted: Value<'_>,
        collator: Option<&dyn Collator>,
    ) -> Result<Option<Option<usize>>> {
        let bytes = items.elements_bytes();
        if bytes.len() <= SHORT_BYTES || bytes.len() > ARRAY_BYTES_MAX {
            return Ok(None);
        }
        let mut firsts = self.firsts.borrow_mut();
        let note = |bytes: &[u8]| Firsts::of(bytes, collator);
        let firsts = firsts.of(self.evaluation.get(), bytes, SEARCHES_MIN, note)?;
        Ok(firsts.map(|firsts| firsts.position(bytes, wanted, collator)))
    }
}

/// Returns where each element begins.
fn starts_of(bytes: &[u8]) -> Result<Vec<u32>> {
    let mut starts = Vec::new();
    for_each_start(bytes, |start, _| {
        if starts.len() == starts.capacity() {
            meter::check_room(2 * starts.len() * size_of::<u32>())?;
        }
        starts.push(start);
        Ok(())
    })?;
    Ok(starts)
}

/// Visits the elements with their starts.
fn for_each_start<'a>(
    bytes: &'a [u8],
    mut visit: impl FnMut(u32, Value<'a>) -> Result<()>,
) -> Result<()> {
    let mut elements = Iter::over(bytes);
    loop {
        let start = bytes.len() - elements.rest().len();
        let Some(element) = elements.next() else { return Ok(()) };
        meter::spend(meter::ELEMENT)?;
        let start = u32::try_from(start).expect("the array is at most 32 MB");
        visit(start, element.value.get())?;
    }
}

/// The first position of each distinct value of an array.
#[derive(Default)]
struct Firsts {
    values: HashTable<First>,
    hashing: DefaultHashBuilder,
}

struct First {
    hash: u64,
    position: u32,
    start: u32,
}

impl First {
    fn has(&self, wanted: Value<'_>, bytes: &[u8], collator: Option<&dyn Collator>) -> bool {
        let element = bytes.get(self.start as usize..).and_then(|bytes| Iter::over(bytes).next());
        element.is_some_and(|element| order::equal_raw(element.value, &wanted, collator))
    }
}

impl Firsts {
    fn of(bytes: &[u8], collator: Option<&dyn Collator>) -> Result<Firsts> {
        let mut firsts = Firsts::default();
        let mut position = 0;
        for_each_start(bytes, |start, value| {
            meter::spend(meter::CALL)?;
            meter::spend_bytes(set::size(value))?;
            let Firsts { values, hashing } = &mut firsts;
            let hash = set::hash(hashing, value, collator);
            if values.find(hash, |first| first.has(value, bytes, collator)).is_none() {
                if values.len() == values.capacity() {
                    meter::check_room(2 * values.len() * size_of::<First>())?;
                }
                values.insert_unique(hash, First { hash, position, start }, |first| first.hash);
            }
            position += 1;
            Ok(())
        })?;
        Ok(firsts)
    }

    fn position(
        &self,
        bytes: &[u8],
        wanted: Value<'_>,
        collator: Option<&dyn Collator>,
    ) -> Option<usize> {
        let hash = set::hash(&self.hashing, wanted, collator);
        let first = self.values.find(hash, |first| first.has(wanted, bytes, collator));
        first.map(|first| first.position as usize)
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::DocBuf;

    use super::*;

    fn array(of: impl Iterator<Item = i32>) -> DocBuf {
        DocBuf::build(|out| {
            let mut items = out.begin_array("a");
            of.for_each(|item| {
                items.push(item);
            });
        })
    }

    #[test]
    fn elements_are_found_at_any_position_each_time() {
        let docs: Vec<DocBuf> = (0..6).map(|of| array(of * 1000..of * 1000 + 100)).collect();
        let positions = Positions::default();
        for _ in 0..3 {
            for at in [0, 15, 16, 50, 99, 100, 1000] {
                for doc in &docs {
                    let items = doc.as_doc().get("a").and_then(|items| items.as_array()).unwrap();
                    let expected: Vec<_> = items.values().skip(at).collect();
                    let found = positions.elements_from(items, at).unwrap();
                    let found: Vec<_> = found.map(|element| element.value.get()).collect();
                    assert_eq!(found, expected, "{at}");
                }
            }
        }
    }

    #[test]
    fn noted_values_are_found_where_comparisons_find_them() {
        let positions = Positions::default();
        let doc = array((0..100).map(|n| n % 40));
        let items = doc.as_doc().get("a").and_then(|items| items.as_array()).unwrap();
        let mut are_noted = false;
        for round in 0..SEARCHES_MIN {
            are_noted |= positions.first(items, Value::Int32(0), None).unwrap().is_some();
            assert_eq!(are_noted, round + 1 == SEARCHES_MIN);
        }
        let wanted = (-1..41).map(Value::Int32).chain([Value::Double(7.0), Value::Null]);
        for wanted in wanted.chain([Value::Int64(39), Value::Double(0.5), Value::Undefined]) {
            let expected = items.values().position(|item| order::equal(item, wanted, None));
            assert_eq!(positions.first(items, wanted, None).unwrap(), Some(expected), "{wanted:?}");
        }
        positions.forget();
        assert_eq!(positions.first(items, Value::Int32(0), None).unwrap(), None);
    }

    #[test]
    fn another_array_at_the_same_address_is_another_array() {
        let positions = Positions::default();
        for of in 0..10 {
            positions.forget();
            let doc = array(of..of + 40);
            let items = doc.as_doc().get("a").and_then(|items| items.as_array()).unwrap();
            for _ in 0..3 {
                let found = positions.elements_from(items, 20).unwrap().next();
                assert_eq!(found.map(|element| element.value.get()), Some(Value::Int32(of + 20)));
            }
        }
    }
}
