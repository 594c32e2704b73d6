//! PCRE2, through its C interface: patterns, and searches that end when their operation must.
//!
//! ```text
//!   search ─► short tries: the pattern alone, few steps per position, some positions at a time
//!               │  a position needs more steps
//!               ▼
//!             watched: the pattern with callouts, mongod's limits, a check at each item
//! ```
//!
//! PCRE2 tries to match at each position of a text in turn. mongod 6.0 limits the steps at one
//! position, not their number in all, and a step may search the whole text, so a search may take
//! minutes. Here the first tries have so few steps that a group of them takes milliseconds, and the
//! operation is [checked](crate::meter) between the groups. Where that is not enough, the rest of
//! the text is searched with callouts, which PCRE2 makes before each item of the pattern: slower,
//! but each of them checks the operation.

#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pcre2_sys as sys;

use crate::meter;

unsafe extern "C" {
    /// Sets the function of the callouts. Source: pcre2callout(3); `pcre2-sys` does not declare it.
    fn pcre2_set_callout_8(
        context: *mut sys::pcre2_match_context_8,
        function: Option<unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int>,
        data: *mut c_void,
    ) -> c_int;
}

/// The limits on the work at one position: steps, and steps that can be gone back to. With these
/// the longest texts that match are those of mongod 6.0, found with a dozen patterns. The third is
/// on the memory for the second, in KiB, which a pattern with hundreds of groups would use up.
const LIMITS: &str = "(*LIMIT_MATCH=200000)(*LIMIT_DEPTH=4000)(*LIMIT_HEAP=32768)";

/// The number of steps of a short try at one position: at least, and at most.
const SHORT_STEPS: [usize; 2] = [20, 20_000];
/// The bytes that the steps of a short try may search together, if each searches the whole text.
const SHORT_TRY_BYTES: usize = 16 << 20;
/// The steps of the short tries at all positions of the first group.
const FIRST_GROUP_STEPS: usize = 256 << 10;
/// A text of up to this length is one group.
const ONE_GROUP_BYTES: usize = 64;
/// A group that takes less time is followed by a larger one.
const GROUP_TIME: Duration = Duration::from_millis(1);

/// The number of searches after which a pattern is compiled to machine code.
const USES_BEFORE_JIT: u32 = 128;
/// The stack of machine code, at first and at most.
const JIT_STACK_BYTES: [usize; 2] = [32 << 10, 1 << 20];

/// The number of bytes after a callout that the next item may search for the cost of one step.
const BYTES_PER_STEP: usize = 256;

/// The number of an error of PCRE2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Failure(pub(crate) i32);

impl Failure {
    /// PCRE2's own text.
    pub(crate) fn text(self) -> String {
        let mut text = [0_u8; 256];
        // SAFETY: it writes at most the given number of bytes.
        let length = unsafe { sys::pcre2_get_error_message_8(self.0, text.as_mut_ptr(), 256) };
        let length = usize::try_from(length).unwrap_or(0);
        String::from_utf8_lossy(&text[..length]).into_owned()
    }
}

/// A pattern in its compiled forms.
pub(crate) struct Pcre {
    source: Box<str>,
    options: u32,
    plain: Code,
    uses: AtomicU32,
    /// The plain form as machine code; `None` inside if there is none for this platform.
    machine_code: OnceLock<Option<Code>>,
    /// The form with callouts.
    watched: OnceLock<Result<Code, Failure>>,
    /// Whether positions cannot be tried in groups: the pattern refers to the one where the search
    /// began, or determines itself where it continues.
    is_whole: bool,
}

/// A compiled pattern.
struct Code(NonNull<sys::pcre2_code_8>);

// SAFETY: a compiled pattern is not changed, and PCRE2 allows several threads to use it.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Code {
    fn new(source: &str, options: u32) -> Result<Code, Failure> {
        let (mut error, mut offset) = (0, 0);
        // SAFETY: the pointers are valid for the call; a null context has the defaults.
        let code = unsafe {
            sys::pcre2_compile_8(
                source.as_ptr(),
                source.len(),
                options,
                &raw mut error,
                &raw mut offset,
                ptr::null_mut(),
            )
        };
        NonNull::new(code).map(Code).ok_or(Failure(error))
    }

    /// The pattern as machine code, if the platform has that.
    fn machine_code(source: &str, options: u32) -> Option<Code> {
        let code = Code::new(source, options).ok()?;
        // SAFETY: no other thread has the code yet.
        let outcome = unsafe { sys::pcre2_jit_compile_8(code.0.as_ptr(), sys::PCRE2_JIT_COMPLETE) };
        (outcome == 0).then_some(code)
    }

    /// The number of groups, without the one for the whole match.
    fn groups(&self) -> usize {
        let mut count = 0_u32;
        // SAFETY: this item is a u32.
        unsafe {
            sys::pcre2_pattern_info_8(
                self.0.as_ptr(),
                sys::PCRE2_INFO_CAPTURECOUNT,
                (&raw mut count).cast(),
            );
        }
        count as usize
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: it is this code's own.
        unsafe { sys::pcre2_code_free_8(self.0.as_ptr()) }
    }
}

/// The limits and the memory of one search.
struct Bench {
    context: NonNull<sys::pcre2_match_context_8>,
    stack: *mut sys::pcre2_jit_stack_8,
    /// For searches that ask only whether there is a match.
    data: Places,
}

impl Bench {
    fn new() -> Bench {
        // SAFETY: null contexts have the defaults; the stack lives as long as the context.
        unsafe {
            let context = sys::pcre2_match_context_create_8(ptr::null_mut());
            let context = NonNull::new(context).expect("there is memory for a context");
            let [first, most] = JIT_STACK_BYTES;
            let stack = sys::pcre2_jit_stack_create_8(first, most, ptr::null_mut());
            sys::pcre2_jit_stack_assign_8(context.as_ptr(), None, stack.cast());
            Bench { context, stack, data: Places::new(1) }
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // SAFETY: both are this value's own.
        unsafe {
            sys::pcre2_jit_stack_free_8(self.stack);
            sys::pcre2_match_context_free_8(self.context.as_ptr());
        }
    }
}

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::new(Bench::new());
}

/// A text to search.
#[derive(Clone, Copy)]
pub(crate) struct Text<'t> {
    bytes: &'t [u8],
    /// Whether it is known to be UTF-8. PCRE2 checks short texts itself, and reports the error.
    is_utf: bool,
}

impl<'t> Text<'t> {
    pub(crate) fn new(bytes: &'t [u8]) -> Self {
        let is_utf = bytes.len() > ONE_GROUP_BYTES && std::str::from_utf8(bytes).is_ok();
        Text { bytes, is_utf }
    }
}

/// The places of a match and of its groups in the text.
pub(crate) struct Places {
    data: NonNull<sys::pcre2_match_data_8>,
    count: usize,
}

impl Places {
    fn new(count: usize) -> Places {
        let pairs = u32::try_from(count).expect("a pattern has at most 65,535 groups");
        // SAFETY: a null context has the defaults.
        let data = unsafe { sys::pcre2_match_data_create_8(pairs, ptr::null_mut()) };
        Places { data: NonNull::new(data).expect("there is memory for a match"), count }
    }

    /// The number of groups, with the one for the whole match.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The start and end of a group in the text of the last match; `None` if it has no part in it.
    pub(crate) fn get(&self, group: usize) -> Option<(usize, usize)> {
        assert!(group < self.count, "the pattern has this group");
        // SAFETY: the vector has two places for each group, which a match has set.
        let [start, end] = unsafe {
            let places = sys::pcre2_get_ovector_pointer_8(self.data.as_ptr());
            [*places.add(2 * group), *places.add(2 * group + 1)]
        };
        (start != usize::MAX).then_some((start, end))
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        // SAFETY: it is this value's own.
        unsafe { sys::pcre2_match_data_free_8(self.data.as_ptr()) }
    }
}

/// Checks the operation of the thread, at each item of a watched pattern.
unsafe extern "C" fn check(_block: *mut c_void, text: *mut c_void) -> c_int {
    // SAFETY: `Tries::run` passes the length of its text.
    let length = unsafe { *text.cast::<usize>() };
    match meter::spend(1 + length / BYTES_PER_STEP) {
        Ok(()) => 0,
        Err(_) => sys::PCRE2_ERROR_CALLOUT,
    }
}

/// The outcome of short tries.
enum Short {
    /// Whether there is a match.
    Decided(bool),
    /// A position at this one or later takes more steps.
    NeedsMore(usize),
}

/// The tries of one call of PCRE2.
#[derive(Clone, Copy)]
struct Tries {
    from: usize,
    /// The last position, if not all up to the end.
    until: Option<usize>,
    /// The steps at each position, if fewer than [`LIMITS`].
    steps: Option<usize>,
}

impl Tries {
    /// Returns whether there is a match.
    fn run(
        self,
        code: &Code,
        Text { bytes: text, is_utf }: Text<'_>,
        bench: &Bench,
        places: &Places,
    ) -> Result<bool, Failure> {
        let context = bench.context.as_ptr();
        let steps = self.steps.and_then(|steps| u32::try_from(steps).ok()).unwrap_or(u32::MAX);
        let options = if is_utf { sys::PCRE2_NO_UTF_CHECK } else { 0 };
        let mut length = text.len();
        // An empty slice has no valid pointer.
        let start = if text.is_empty() { c"".as_ptr().cast() } else { text.as_ptr() };
        // SAFETY: all pointers are valid for the call; the text is UTF-8 where the check is left
        // out.
        let outcome = unsafe {
            sys::pcre2_set_match_limit_8(context, steps);
            sys::pcre2_set_offset_limit_8(context, self.until.unwrap_or(usize::MAX));
            pcre2_set_callout_8(context, Some(check), (&raw mut length).cast());
            sys::pcre2_match_8(
                code.0.as_ptr(),
                start,
                text.len(),
                self.from,
                options,
                places.data.as_ptr(),
                context,
            )
        };
        match outcome {
            // Zero: there are more groups than places.
            0.. => Ok(true),
            // After a check that failed nothing matches; the next check fails too.
            sys::PCRE2_ERROR_NOMATCH | sys::PCRE2_ERROR_CALLOUT => Ok(false),
            error => Err(Failure(error)),
        }
    }
}

impl Pcre {
    /// Compiles a pattern with MongoDB's options.
    ///
    /// Errors: the pattern is invalid.
    pub(crate) fn new(pattern: &str, options: &[u8]) -> Result<Pcre, Failure> {
        // PCRE1, which mongod 6.0 uses, accepts the item under both names.
        let pattern = pattern.strip_prefix("(*UTF8)").unwrap_or(pattern);
        let source = format!("{LIMITS}{pattern}").into_boxed_str();
        let known = [
            (b'i', sys::PCRE2_CASELESS),
            (b'm', sys::PCRE2_MULTILINE),
            (b's', sys::PCRE2_DOTALL),
            (b'x', sys::PCRE2_EXTENDED),
        ];
        let given = known.iter().filter(|(name, _)| options.contains(name));
        let options = given.fold(sys::PCRE2_UTF, |all, (_, one)| all | one);
        let is_whole = ["\\G", "(*COMMIT", "(*SKIP"].iter().any(|item| pattern.contains(item));
        Ok(Pcre {
            plain: Code::new(&source, options | sys::PCRE2_USE_OFFSET_LIMIT)?,
            source,
            options,
            uses: AtomicU32::new(0),
            machine_code: OnceLock::new(),
            watched: OnceLock::new(),
            is_whole,
        })
    }

    /// Returns whether the pattern matches somewhere in the text. If the operation must end,
    /// nothing matches, and the [next](meter::recall) check fails.
    ///
    /// Errors: the match takes too much work, or the text is not UTF-8.
    pub(crate) fn is_match(&self, text: &[u8]) -> Result<bool, Failure> {
        BENCH.with_borrow_mut(|bench| {
            let outcome = self.search(Text::new(text), 0, bench, &bench.data);
            if outcome.is_err() {
                // It may hold the memory of thousands of steps.
                bench.data = Places::new(1);
            }
            outcome
        })
    }

    /// The places for a match.
    pub(crate) fn places(&self) -> Places {
        Places::new(1 + self.plain.groups())
    }

    /// Returns the start and end of the first match at `from` or later.
    ///
    /// Errors: as [`Pcre::is_match`].
    pub(crate) fn find(
        &self,
        text: Text<'_>,
        from: usize,
        places: &mut Places,
    ) -> Result<Option<(usize, usize)>, Failure> {
        let is_found = BENCH.with_borrow(|bench| self.search(text, from, bench, places))?;
        Ok(is_found.then(|| places.get(0)).flatten())
    }

    fn search(
        &self,
        text: Text<'_>,
        from: usize,
        bench: &Bench,
        places: &Places,
    ) -> Result<bool, Failure> {
        let from = match self.is_whole {
            true => from,
            false => match self.try_shortly(text, from, bench, places)? {
                Short::Decided(is_found) => return Ok(is_found),
                Short::NeedsMore(from) => from,
            },
        };
        let tries = Tries { from, until: None, steps: None };
        tries.run(self.watched()?, text, bench, places)
    }

    /// Tries the positions from `from` on with few steps each, in groups if the text is long and
    /// known to be UTF-8; the error for a text that is not is PCRE2's.
    fn try_shortly(
        &self,
        text: Text<'_>,
        mut from: usize,
        bench: &Bench,
        places: &Places,
    ) -> Result<Short, Failure> {
        let Text { bytes, is_utf } = text;
        let [least, most] = SHORT_STEPS;
        let steps = match bytes.len() <= ONE_GROUP_BYTES {
            true => FIRST_GROUP_STEPS / ONE_GROUP_BYTES,
            false => (SHORT_TRY_BYTES / bytes.len()).clamp(least, most),
        };
        // A position of a long text may cost a search of the text.
        let mut group = (FIRST_GROUP_STEPS / steps.max(bytes.len())).max(1);
        loop {
            let until = Some(from.saturating_add(group)).filter(|_| is_utf);
            let until = until.filter(|until| *until < bytes.len());
            let tries = Tries { from, until, steps: Some(steps) };
            let began = is_utf.then(Instant::now);
            match tries.run(self.fastest(), text, bench, places) {
                Ok(false) => {}
                Ok(true) => return Ok(Short::Decided(true)),
                Err(Failure(
                    sys::PCRE2_ERROR_MATCHLIMIT
                    | sys::PCRE2_ERROR_DEPTHLIMIT
                    | sys::PCRE2_ERROR_HEAPLIMIT
                    | sys::PCRE2_ERROR_JIT_STACKLIMIT,
                )) => return Ok(Short::NeedsMore(from)),
                Err(failure) => return Err(failure),
            }
            let Some(until) = until else { return Ok(Short::Decided(false)) };
            if meter::spend(meter::MATCH).is_err() {
                return Ok(Short::Decided(false));
            }
            from = until + 1;
            while from < bytes.len() && !is_boundary(bytes[from]) {
                from += 1;
            }
            match began.is_some_and(|began| began.elapsed() < GROUP_TIME) {
                true => group = group.saturating_mul(4),
                false => group = (group / 2).max(1),
            }
        }
    }

    /// The form for short tries.
    fn fastest(&self) -> &Code {
        if let Some(machine_code) = self.machine_code.get() {
            return machine_code.as_ref().unwrap_or(&self.plain);
        }
        if self.uses.fetch_add(1, Ordering::Relaxed) == USES_BEFORE_JIT {
            let options = self.options | sys::PCRE2_USE_OFFSET_LIMIT;
            self.machine_code.get_or_init(|| Code::machine_code(&self.source, options));
        }
        &self.plain
    }

    fn watched(&self) -> Result<&Code, Failure> {
        let options = self.options | sys::PCRE2_AUTO_CALLOUT;
        self.watched
            .get_or_init(|| Code::new(&self.source, options))
            .as_ref()
            .map_err(|error| *error)
    }
}

/// Returns whether a character of UTF-8 begins with this byte.
fn is_boundary(byte: u8) -> bool {
    byte & 0xc0 != 0x80
}
