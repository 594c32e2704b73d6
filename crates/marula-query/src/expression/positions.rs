//! Where the elements of arrays begin. An array is bytes, so that its elements are found one after
//! the other; an expression that reads an array by position for each of its elements would read it
//! as often as it has elements.

use std::cell::{Cell, RefCell};

use marula_bson::{Doc, Value, doc::Iter};
use marula_error::Result;

use crate::meter;

/// The position up to which an array is read from its start.
const NEAR: usize = 16;
/// The number of arrays whose elements are noted at the same time.
const ARRAYS_MAX: usize = 4;
/// The size of an array up to which its elements are noted.
const ARRAY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The arrays that an evaluation has read by position.
///
/// An array is known by its address, which is its own during one evaluation, because its bytes are
/// borrowed for all of it. The next evaluation forgets all.
#[derive(Default)]
pub(super) struct Positions {
    /// The number of the evaluation.
    evaluation: Cell<u64>,
    noted: RefCell<Noted>,
}

#[derive(Default)]
struct Noted {
    evaluation: u64,
    arrays: Vec<Array>,
    /// The entry that the next array replaces.
    next: usize,
}

struct Array {
    address: usize,
    length: usize,
    /// The start of each element; empty until the array is read for the second time.
    starts: Vec<u32>,
}

impl Positions {
    /// Begins another evaluation.
    pub(super) fn forget(&self) {
        self.evaluation.set(self.evaluation.get() + 1);
    }

    /// The elements of an array from a position on.
    ///
    /// Errors: the server is short of memory.
    pub(super) fn values_from<'a>(
        &self,
        items: Doc<'a>,
        at: usize,
    ) -> Result<impl Iterator<Item = Value<'a>> + use<'a>> {
        let elements = match self.start_of(items, at)? {
            Some(start) => Iter::over(items.elements_bytes().get(start..).unwrap_or_default()),
            None => {
                let mut elements = items.iter();
                if at > 0 {
                    elements.nth(at - 1);
                }
                elements
            }
        };
        Ok(elements.map(|element| element.value.get()))
    }

    /// Returns where an element begins, if that is noted: the end of the array if it has no such
    /// element.
    fn start_of(&self, items: Doc<'_>, at: usize) -> Result<Option<usize>> {
        let bytes = items.elements_bytes();
        if at < NEAR || bytes.len() > ARRAY_BYTES_MAX {
            return Ok(None);
        }
        let noted = &mut *self.noted.borrow_mut();
        if noted.evaluation != self.evaluation.get() {
            noted.evaluation = self.evaluation.get();
            noted.arrays.clear();
        }
        let (address, length) = (bytes.as_ptr().addr(), bytes.len());
        let is_same = |array: &&mut Array| array.address == address && array.length == length;
        if let Some(array) = noted.arrays.iter_mut().find(is_same) {
            if array.starts.is_empty() {
                array.starts = starts(bytes)?;
            }
            let start = array.starts.get(at).map(|&start| start as usize);
            return Ok(Some(start.unwrap_or(bytes.len())));
        }
        let array = Array { address, length, starts: Vec::new() };
        if noted.arrays.len() < ARRAYS_MAX {
            noted.arrays.push(array);
        } else {
            noted.next = (noted.next + 1) % ARRAYS_MAX;
            noted.arrays[noted.next] = array;
        }
        Ok(None)
    }
}

/// Returns where each element begins.
fn starts(bytes: &[u8]) -> Result<Vec<u32>> {
    let mut starts = Vec::new();
    let mut elements = Iter::over(bytes);
    loop {
        let start = bytes.len() - elements.rest().len();
        if elements.next().is_none() {
            return Ok(starts);
        }
        meter::spend(meter::ELEMENT)?;
        if starts.len() == starts.capacity() {
            meter::check_room(2 * starts.len() * size_of::<u32>())?;
        }
        starts.push(u32::try_from(start).expect("the array is at most 32 MB"));
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
                    let found: Vec<_> = positions.values_from(items, at).unwrap().collect();
                    assert_eq!(found, expected, "{at}");
                }
            }
        }
    }

    #[test]
    fn another_array_at_the_same_address_is_another_array() {
        let positions = Positions::default();
        for of in 0..10 {
            positions.forget();
            let doc = array(of..of + 40);
            let items = doc.as_doc().get("a").and_then(|items| items.as_array()).unwrap();
            for _ in 0..3 {
                let found = positions.values_from(items, 20).unwrap().next();
                assert_eq!(found, Some(Value::Int32(of + 20)));
            }
        }
    }
}
