//! Notes on arrays that one evaluation reads several times.

use marula_error::Result;

/// The number of arrays that are noted at the same time.
const ARRAYS_MAX: usize = 4;

/// Notes on the arrays that an evaluation has read last.
///
/// An array is known by its address, which is its own during one evaluation, because its bytes are
/// borrowed for all of it. The next evaluation forgets all.
pub(super) struct Notes<T> {
    /// The number of the evaluation.
    evaluation: u64,
    arrays: Vec<Array<T>>,
    /// The entry that the next array replaces.
    next: usize,
}

struct Array<T> {
    address: usize,
    length: usize,
    /// The number of times that it was read.
    reads: u32,
    note: Option<T>,
}

impl<T> Default for Notes<T> {
    fn default() -> Self {
        Notes { evaluation: 0, arrays: Vec::new(), next: 0 }
    }
}

impl<T> Notes<T> {
    /// Returns the note on an array, which is made when the array is read for the `reads_min`th
    /// time in this evaluation.
    ///
    /// Errors: those of `make`.
    pub(super) fn of(
        &mut self,
        evaluation: u64,
        bytes: &[u8],
        reads_min: u32,
        make: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<Option<&T>> {
        if self.evaluation != evaluation {
            self.evaluation = evaluation;
            self.arrays.clear();
        }
        let (address, length) = (bytes.as_ptr().addr(), bytes.len());
        let is_same = |array: &Array<T>| array.address == address && array.length == length;
        let Some(at) = self.arrays.iter().position(is_same) else {
            let array = Array { address, length, reads: 1, note: None };
            if self.arrays.len() < ARRAYS_MAX {
                self.arrays.push(array);
            } else {
                self.next = (self.next + 1) % ARRAYS_MAX;
                self.arrays[self.next] = array;
            }
            return Ok(None);
        };
        let array = &mut self.arrays[at];
        array.reads = array.reads.saturating_add(1);
        if array.note.is_none() && array.reads >= reads_min {
            array.note = Some(make(bytes)?);
        }
        Ok(array.note.as_ref())
    }
}
