//! FoundationDB's client library, `libfdb_c.so`, loaded when it is needed.
//!
//! All unsafe code is here. The library is reached through C functions whose signatures are those
//! of `fdb_c.h` of version 7.3. The types of this module are safe: a [`Transaction`] belongs to
//! one call, a [`Future`] is waited for before anything is read from it, and what is read is
//! copied.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::Path;
use std::ptr;
use std::sync::{Arc, OnceLock};

/// The version of the interface: FoundationDB 7.3.
const API_VERSION: c_int = 730;

/// The file that the dynamic linker looks for where no path is given.
const FILE: &str = "libfdb_c.so";

/// An error of the library. Source: FoundationDB, "Error Codes".
pub(super) type Code = c_int;

/// `FDB_ERROR_PREDICATE_MAYBE_COMMITTED`.
pub(super) const MAYBE_COMMITTED: c_int = 50_001;
/// `FDB_ERROR_PREDICATE_RETRYABLE_NOT_COMMITTED`.
pub(super) const RETRYABLE_NOT_COMMITTED: c_int = 50_002;

/// `FDB_TR_OPTION_TIMEOUT`, in milliseconds.
const OPTION_TIMEOUT: c_int = 500;
/// `FDB_STREAMING_MODE_WANT_ALL`.
const WANT_ALL: c_int = -2;
/// `FDB_MUTATION_TYPE_ADD`.
pub(super) const ADD: c_int = 2;
/// `FDB_MUTATION_TYPE_SET_VERSIONSTAMPED_KEY`.
pub(super) const SET_STAMPED_KEY: c_int = 14;
/// `FDB_CONFLICT_RANGE_TYPE_READ` and `…_WRITE`.
pub(super) const READ: c_int = 0;
pub(super) const WRITE: c_int = 1;

/// A thing of the library that only it looks into.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

/// `FDBKeyValue`: packed to four bytes.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
struct RawKeyValue {
    key: *const u8,
    key_length: c_int,
    value: *const u8,
    value_length: c_int,
}

/// `FDBKey`: packed to four bytes.
#[repr(C, packed(4))]
#[derive(Clone, Copy)]
struct RawKey {
    key: *const u8,
    key_length: c_int,
}

macro_rules! functions {
    ($($name:ident: fn($($type:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of the library.
        struct Functions {
            $($name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        impl Functions {
            fn find(library: &libloading::Library) -> Result<Self, libloading::Error> {
                // SAFETY: the names and types are those of fdb_c.h; the library lives as long as
                // the process (see `load`), and so do the functions.
                unsafe {
                    Ok(Functions {
                        $($name: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)*
                    })
                }
            }
        }
    };
}

functions! {
    fdb_get_error: fn(Code) -> *const c_char;
    fdb_error_predicate: fn(c_int, Code) -> c_int;
    fdb_select_api_version_impl: fn(c_int, c_int) -> Code;
    fdb_get_max_api_version: fn() -> c_int;
    fdb_get_client_version: fn() -> *const c_char;
    fdb_setup_network: fn() -> Code;
    fdb_run_network: fn() -> Code;
    fdb_future_destroy: fn(*mut Opaque);
    fdb_future_block_until_ready: fn(*mut Opaque) -> Code;
    fdb_future_get_error: fn(*mut Opaque) -> Code;
    fdb_future_get_int64: fn(*mut Opaque, *mut i64) -> Code;
    fdb_future_get_key: fn(*mut Opaque, *mut *const u8, *mut c_int) -> Code;
    fdb_future_get_value: fn(*mut Opaque, *mut c_int, *mut *const u8, *mut c_int) -> Code;
    fdb_future_get_keyvalue_array: fn(*mut Opaque, *mut *const RawKeyValue, *mut c_int, *mut c_int) -> Code;
    fdb_future_get_key_array: fn(*mut Opaque, *mut *const RawKey, *mut c_int) -> Code;
    fdb_create_database: fn(*const c_char, *mut *mut Opaque) -> Code;
    fdb_database_destroy: fn(*mut Opaque);
    fdb_database_create_transaction: fn(*mut Opaque, *mut *mut Opaque) -> Code;
    fdb_transaction_destroy: fn(*mut Opaque);
    fdb_transaction_set_option: fn(*mut Opaque, c_int, *const u8, c_int) -> Code;
    fdb_transaction_set_read_version: fn(*mut Opaque, i64);
    fdb_transaction_get_read_version: fn(*mut Opaque) -> *mut Opaque;
    fdb_transaction_get: fn(*mut Opaque, *const u8, c_int, c_int) -> *mut Opaque;
    fdb_transaction_get_range: fn(
        *mut Opaque,
        *const u8, c_int, c_int, c_int,
        *const u8, c_int, c_int, c_int,
        c_int, c_int, c_int, c_int, c_int, c_int
    ) -> *mut Opaque;
    fdb_transaction_get_estimated_range_size_bytes: fn(*mut Opaque, *const u8, c_int, *const u8, c_int) -> *mut Opaque;
    fdb_transaction_get_range_split_points: fn(*mut Opaque, *const u8, c_int, *const u8, c_int, i64) -> *mut Opaque;
    fdb_transaction_set: fn(*mut Opaque, *const u8, c_int, *const u8, c_int);
    fdb_transaction_clear: fn(*mut Opaque, *const u8, c_int);
    fdb_transaction_clear_range: fn(*mut Opaque, *const u8, c_int, *const u8, c_int);
    fdb_transaction_atomic_op: fn(*mut Opaque, *const u8, c_int, *const u8, c_int, c_int);
    fdb_transaction_add_conflict_range: fn(*mut Opaque, *const u8, c_int, *const u8, c_int, c_int) -> Code;
    fdb_transaction_commit: fn(*mut Opaque) -> *mut Opaque;
    fdb_transaction_get_versionstamp: fn(*mut Opaque) -> *mut Opaque;
}

/// The library, with its network running.
pub(super) struct Library {
    functions: Functions,
}

static LOADED: OnceLock<Result<Arc<Library>, String>> = OnceLock::new();

impl Library {
    /// The library of this process: loaded once, from `path` or where the system has it. The path
    /// of a later call is not looked at.
    ///
    /// Errors: one line that says what is missing.
    pub(super) fn load(path: Option<&Path>) -> Result<Arc<Library>, String> {
        let file = path.unwrap_or(Path::new(FILE));
        LOADED.get_or_init(|| Library::start(file)).clone()
    }

    fn start(file: &Path) -> Result<Arc<Library>, String> {
        let shown = file.display();
        // SAFETY: loading runs the library's initialisers. It is FoundationDB's client, or what the
        // operator has named in its place.
        let library = unsafe { libloading::Library::new(file) }
            .map_err(|error| format!("cannot load FoundationDB's client library '{shown}' (package foundationdb-clients): {error}"))?;
        let functions = Functions::find(&library).map_err(|error| {
            format!("'{shown}' is no client library of FoundationDB 7.3: {error}")
        })?;
        // It runs a thread of its own to the end of the process: it is never unloaded.
        std::mem::forget(library);
        let library = Arc::new(Library { functions });
        let functions = &library.functions;
        // SAFETY: these take no pointers, or give static strings.
        let (most, version) = unsafe {
            let version = CStr::from_ptr((functions.fdb_get_client_version)());
            ((functions.fdb_get_max_api_version)(), version.to_string_lossy().into_owned())
        };
        if most < API_VERSION {
            return Err(format!(
                "FoundationDB's client library '{shown}' is of version {version}; 7.3 or later is needed"
            ));
        }
        // SAFETY: called once, before anything else of the library.
        let selected = unsafe { (functions.fdb_select_api_version_impl)(API_VERSION, API_VERSION) };
        library.check(selected).map_err(|code| library.describe("select its version", code))?;
        // SAFETY: the version has been selected; called once.
        let ready = unsafe { (functions.fdb_setup_network)() };
        library.check(ready).map_err(|code| library.describe("set up its network", code))?;
        let network = library.clone();
        let run = move || {
            // SAFETY: the network has been set up; this is its only thread. It returns when the
            // network is stopped, which happens at the end of the process at most.
            let code = unsafe { (network.functions.fdb_run_network)() };
            if code != 0 {
                tracing::error!(code, "FoundationDB's network has ended");
            }
        };
        let thread = std::thread::Builder::new().name("fdb-network".into()).spawn(run);
        thread.map_err(|error| format!("cannot start FoundationDB's network: {error}"))?;
        Ok(library)
    }

    fn check(&self, code: Code) -> Result<(), Code> {
        if code == 0 { Ok(()) } else { Err(code) }
    }

    fn describe(&self, what: &str, code: Code) -> String {
        format!("FoundationDB's client cannot {what}: {} ({code})", self.text(code))
    }

    /// The text of an error.
    pub(super) fn text(&self, code: Code) -> String {
        // SAFETY: the library gives a static string for every number.
        unsafe { CStr::from_ptr((self.functions.fdb_get_error)(code)) }
            .to_string_lossy()
            .into_owned()
    }

    /// Whether an error is of a kind.
    pub(super) fn is(&self, predicate: c_int, code: Code) -> bool {
        // SAFETY: it takes numbers.
        unsafe { (self.functions.fdb_error_predicate)(predicate, code) != 0 }
    }
}

/// A cluster.
pub(super) struct Database {
    library: Arc<Library>,
    pointer: *mut Opaque,
}

// SAFETY: the library's databases may be used by all threads at once; fdb_c.h says so of all its
// functions but those of the network.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl Database {
    /// The cluster that a file names; without one, the system's own.
    pub(super) fn open(library: Arc<Library>, cluster_file: Option<&Path>) -> Result<Self, String> {
        let path = cluster_file
            .map(|path| CString::new(path.as_os_str().as_encoded_bytes()))
            .transpose()
            .map_err(|_| "the path of the cluster file has a zero in it".to_owned())?;
        let mut pointer = ptr::null_mut();
        // SAFETY: the path ends with a zero and lives through the call, or is null, which the
        // library takes for its default; the result goes into a variable of ours.
        let code = unsafe {
            (library.functions.fdb_create_database)(
                path.as_ref().map_or(ptr::null(), |path| path.as_ptr()),
                &mut pointer,
            )
        };
        library.check(code).map_err(|code| library.describe("open the cluster", code))?;
        Ok(Database { library, pointer })
    }

    pub(super) fn library(&self) -> &Library {
        &self.library
    }

    /// A transaction that gives up after a time.
    pub(super) fn begin(&self, timeout_ms: i64) -> Result<Transaction<'_>, Code> {
        let mut pointer = ptr::null_mut();
        let functions = &self.library.functions;
        // SAFETY: the database is open; the result goes into a variable of ours.
        let code =
            unsafe { (functions.fdb_database_create_transaction)(self.pointer, &mut pointer) };
        self.library.check(code)?;
        let transaction = Transaction { library: &self.library, pointer };
        let bytes = timeout_ms.to_le_bytes();
        // SAFETY: the transaction is open; the bytes live through the call.
        let code = unsafe {
            (functions.fdb_transaction_set_option)(
                pointer,
                OPTION_TIMEOUT,
                bytes.as_ptr(),
                length_of(&bytes),
            )
        };
        self.library.check(code)?;
        Ok(transaction)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: it was opened, and nothing uses it any more: transactions borrow it.
        unsafe { (self.library.functions.fdb_database_destroy)(self.pointer) }
    }
}

/// A transaction, used by one call.
pub(super) struct Transaction<'d> {
    library: &'d Library,
    pointer: *mut Opaque,
}

/// Keys are at most 10,000 bytes and values 100,000; the backend has checked them.
fn length_of(bytes: &[u8]) -> c_int {
    c_int::try_from(bytes.len()).expect("keys and values are short")
}

impl<'d> Transaction<'d> {
    fn future(&self, pointer: *mut Opaque) -> Future<'d> {
        Future { library: self.library, pointer }
    }

    pub(super) fn set_read_version(&self, version: i64) {
        // SAFETY: the transaction is open.
        unsafe { (self.library.functions.fdb_transaction_set_read_version)(self.pointer, version) }
    }

    pub(super) fn read_version(&self) -> Future<'d> {
        // SAFETY: the transaction is open.
        self.future(unsafe {
            (self.library.functions.fdb_transaction_get_read_version)(self.pointer)
        })
    }

    pub(super) fn get(&self, key: &[u8]) -> Future<'d> {
        // SAFETY: the transaction is open; the library copies the key. Snapshot reads note no
        // conflict.
        self.future(unsafe {
            (self.library.functions.fdb_transaction_get)(
                self.pointer,
                key.as_ptr(),
                length_of(key),
                1,
            )
        })
    }

    pub(super) fn get_range(
        &self,
        (start, end): (&[u8], &[u8]),
        (entries_max, bytes_max): (c_int, c_int),
        is_reverse: bool,
    ) -> Future<'d> {
        // SAFETY: the transaction is open; the library copies the keys. Both selectors are "first
        // greater or equal": no or-equal, offset 1.
        self.future(unsafe {
            (self.library.functions.fdb_transaction_get_range)(
                self.pointer,
                start.as_ptr(),
                length_of(start),
                0,
                1,
                end.as_ptr(),
                length_of(end),
                0,
                1,
                entries_max,
                bytes_max,
                WANT_ALL,
                1,
                1,
                c_int::from(is_reverse),
            )
        })
    }

    pub(super) fn estimated_bytes(&self, start: &[u8], end: &[u8]) -> Future<'d> {
        // SAFETY: the transaction is open; the library copies the keys.
        self.future(unsafe {
            (self.library.functions.fdb_transaction_get_estimated_range_size_bytes)(
                self.pointer,
                start.as_ptr(),
                length_of(start),
                end.as_ptr(),
                length_of(end),
            )
        })
    }

    pub(super) fn split_points(&self, start: &[u8], end: &[u8], chunk_bytes: i64) -> Future<'d> {
        // SAFETY: the transaction is open; the library copies the keys.
        self.future(unsafe {
            (self.library.functions.fdb_transaction_get_range_split_points)(
                self.pointer,
                start.as_ptr(),
                length_of(start),
                end.as_ptr(),
                length_of(end),
                chunk_bytes,
            )
        })
    }

    pub(super) fn set(&self, key: &[u8], value: &[u8]) {
        // SAFETY: the transaction is open; the library copies both.
        unsafe {
            (self.library.functions.fdb_transaction_set)(
                self.pointer,
                key.as_ptr(),
                length_of(key),
                value.as_ptr(),
                length_of(value),
            );
        }
    }

    pub(super) fn clear(&self, key: &[u8]) {
        // SAFETY: the transaction is open; the library copies the key.
        unsafe {
            (self.library.functions.fdb_transaction_clear)(
                self.pointer,
                key.as_ptr(),
                length_of(key),
            );
        }
    }

    pub(super) fn clear_range(&self, start: &[u8], end: &[u8]) {
        // SAFETY: the transaction is open; the library copies the keys.
        unsafe {
            (self.library.functions.fdb_transaction_clear_range)(
                self.pointer,
                start.as_ptr(),
                length_of(start),
                end.as_ptr(),
                length_of(end),
            );
        }
    }

    pub(super) fn atomic(&self, kind: c_int, key: &[u8], parameter: &[u8]) {
        // SAFETY: the transaction is open; the library copies both.
        unsafe {
            (self.library.functions.fdb_transaction_atomic_op)(
                self.pointer,
                key.as_ptr(),
                length_of(key),
                parameter.as_ptr(),
                length_of(parameter),
                kind,
            );
        }
    }

    pub(super) fn add_conflict(&self, kind: c_int, start: &[u8], end: &[u8]) -> Result<(), Code> {
        // SAFETY: the transaction is open; the library copies the keys.
        let code = unsafe {
            (self.library.functions.fdb_transaction_add_conflict_range)(
                self.pointer,
                start.as_ptr(),
                length_of(start),
                end.as_ptr(),
                length_of(end),
                kind,
            )
        };
        self.library.check(code)
    }

    /// The stamp of the commit that follows; to be waited for after it.
    pub(super) fn stamp(&self) -> Future<'d> {
        // SAFETY: the transaction is open.
        self.future(unsafe {
            (self.library.functions.fdb_transaction_get_versionstamp)(self.pointer)
        })
    }

    pub(super) fn commit(&self) -> Future<'d> {
        // SAFETY: the transaction is open.
        self.future(unsafe { (self.library.functions.fdb_transaction_commit)(self.pointer) })
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SAFETY: it was opened; its futures may outlive it, they then end with an error.
        unsafe { (self.library.functions.fdb_transaction_destroy)(self.pointer) }
    }
}

/// The result of a call, once it is there.
pub(super) struct Future<'d> {
    library: &'d Library,
    pointer: *mut Opaque,
}

impl Future<'_> {
    /// Waits for the end; answers the error, if it is one.
    pub(super) fn wait(&self) -> Result<(), Code> {
        let functions = &self.library.functions;
        // SAFETY: the future is there until it is dropped; this is not the network's thread.
        self.library.check(unsafe { (functions.fdb_future_block_until_ready)(self.pointer) })?;
        // SAFETY: as above.
        self.library.check(unsafe { (functions.fdb_future_get_error)(self.pointer) })
    }

    /// The number that it has come to.
    pub(super) fn number(&self) -> Result<i64, Code> {
        self.wait()?;
        let mut number = 0;
        // SAFETY: the future is ready; the number goes into a variable of ours.
        let code =
            unsafe { (self.library.functions.fdb_future_get_int64)(self.pointer, &mut number) };
        self.library.check(code)?;
        Ok(number)
    }

    /// The key that it has come to.
    pub(super) fn key(&self) -> Result<Vec<u8>, Code> {
        self.wait()?;
        let (mut start, mut length) = (ptr::null(), 0);
        // SAFETY: the future is ready; the results go into variables of ours.
        let code = unsafe {
            (self.library.functions.fdb_future_get_key)(self.pointer, &mut start, &mut length)
        };
        self.library.check(code)?;
        // SAFETY: the library gives a run of bytes that lives as long as the future.
        Ok(unsafe { copied(start, length) })
    }

    /// The value that it has come to, if there is one.
    pub(super) fn value(&self) -> Result<Option<Vec<u8>>, Code> {
        self.wait()?;
        let (mut is_there, mut start, mut length) = (0, ptr::null(), 0);
        // SAFETY: the future is ready; the results go into variables of ours.
        let code = unsafe {
            (self.library.functions.fdb_future_get_value)(
                self.pointer,
                &mut is_there,
                &mut start,
                &mut length,
            )
        };
        self.library.check(code)?;
        // SAFETY: the library gives a run of bytes that lives as long as the future.
        Ok((is_there != 0).then(|| unsafe { copied(start, length) }))
    }

    /// The keys and values that it has come to, and whether there are more.
    pub(super) fn entries(&self) -> Result<(Vec<(Vec<u8>, Vec<u8>)>, bool), Code> {
        self.wait()?;
        let (mut first, mut count, mut has_more) = (ptr::null(), 0, 0);
        // SAFETY: the future is ready; the results go into variables of ours.
        let code = unsafe {
            (self.library.functions.fdb_future_get_keyvalue_array)(
                self.pointer,
                &mut first,
                &mut count,
                &mut has_more,
            )
        };
        self.library.check(code)?;
        let entry = |place: usize| {
            // SAFETY: the library gives `count` entries that live as long as the future; they are
            // packed, so that they are read without assuming where they lie.
            unsafe {
                let raw = first.add(place).read_unaligned();
                (copied(raw.key, raw.key_length), copied(raw.value, raw.value_length))
            }
        };
        Ok(((0..count.max(0) as usize).map(entry).collect(), has_more != 0))
    }

    /// The keys that it has come to.
    pub(super) fn keys(&self) -> Result<Vec<Vec<u8>>, Code> {
        self.wait()?;
        let (mut first, mut count) = (ptr::null(), 0);
        // SAFETY: the future is ready; the results go into variables of ours.
        let code = unsafe {
            (self.library.functions.fdb_future_get_key_array)(self.pointer, &mut first, &mut count)
        };
        self.library.check(code)?;
        let key = |place: usize| {
            // SAFETY: as of the entries.
            unsafe {
                let raw = first.add(place).read_unaligned();
                copied(raw.key, raw.key_length)
            }
        };
        Ok((0..count.max(0) as usize).map(key).collect())
    }
}

impl Drop for Future<'_> {
    fn drop(&mut self) {
        // SAFETY: the library made it, and it is destroyed once.
        unsafe { (self.library.functions.fdb_future_destroy)(self.pointer) }
    }
}

/// Copies a run of bytes; it may be null where it is empty.
///
/// # Safety
/// `length` bytes from `start` on are there.
unsafe fn copied(start: *const u8, length: c_int) -> Vec<u8> {
    match usize::try_from(length) {
        // SAFETY: the caller says so.
        Ok(length) if length > 0 => unsafe { std::slice::from_raw_parts(start, length) }.to_vec(),
        _ => Vec::new(),
    }
}
