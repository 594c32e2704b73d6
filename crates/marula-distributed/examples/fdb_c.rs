//! A stand-in for `libfdb_c.so`, FoundationDB's client library, over the simulated store: for the
//! tests of the `fdb` backend alone.
//!
//! It has the functions that the backend calls, with their signatures and error numbers. A *cluster
//! file* is one of its own: lines of `name = number` for the simulated store's faults. Databases
//! that are opened with the same file are one store.

// The safety of each function is that of fdb_c.h.
#![allow(unsafe_code, unreachable_pub, missing_docs, clippy::missing_safety_doc)]

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use marula_distributed::kv::{BlockLimit, Commit, Conflict, Kv, KvError, Mutation, Result};
use marula_distributed::sim::{Faults, Sim, StepClock};
use marula_storage::{Direction, KeyRange, Stamp};
use parking_lot::Mutex;

type Code = c_int;

static STORES: LazyLock<Mutex<HashMap<String, Arc<Sim>>>> = LazyLock::new(Mutex::default);

/// The store of a cluster file.
pub struct Database {
    sim: Arc<Sim>,
}

/// The state of a transaction.
pub struct Transaction {
    sim: Arc<Sim>,
    version: Option<u64>,
    commit: Commit,
    stamp: Arc<Mutex<Option<Stamp>>>,
}

/// `FDBKeyValue`.
#[repr(C, packed(4))]
pub struct KeyValue {
    key: *const u8,
    key_length: c_int,
    value: *const u8,
    value_length: c_int,
}

/// `FDBKey`.
#[repr(C, packed(4))]
pub struct Key {
    key: *const u8,
    key_length: c_int,
}

/// A call that has ended already.
pub struct Future {
    outcome: Result<Outcome, Code>,
}

enum Outcome {
    Nothing,
    Number(i64),
    Value(Option<Vec<u8>>),
    Entries {
        raw: Vec<KeyValue>,
        _held: Vec<(Vec<u8>, Vec<u8>)>,
        has_more: bool,
    },
    Keys {
        raw: Vec<Key>,
        _held: Vec<Vec<u8>>,
    },
    /// The stamp of a commit that was to follow, once it has been made.
    Stamp {
        of: Arc<Mutex<Option<Stamp>>>,
        bytes: [u8; Stamp::BYTES],
    },
}

fn code_of(error: KvError) -> Code {
    match error {
        KvError::Conflict => 1020,
        KvError::TooOld => 1007,
        KvError::TooLarge => 2101,
        KvError::Unknown => 1021,
        // `process_behind`, by its number in the client library.
        KvError::Unavailable(_) => 1037,
        KvError::Corrupt(_) => 4100,
    }
}

fn future(outcome: Result<Outcome>) -> *mut Future {
    Box::into_raw(Box::new(Future { outcome: outcome.map_err(code_of) }))
}

/// # Safety
/// `length` bytes from `start` on are there.
unsafe fn bytes(start: *const u8, length: c_int) -> Vec<u8> {
    if length == 0 {
        Vec::new()
    } else {
        unsafe { std::slice::from_raw_parts(start, length as usize) }.to_vec()
    }
}

fn length(bytes: &[u8]) -> c_int {
    c_int::try_from(bytes.len()).expect("it is short")
}

impl Transaction {
    fn version(&mut self) -> Result<u64> {
        match self.version {
            Some(version) => Ok(version),
            None => {
                let version = self.sim.read_version()?;
                self.version = Some(version);
                Ok(version)
            }
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn fdb_get_error(code: Code) -> *const c_char {
    let text: &CStr = match code {
        0 => c"Success",
        1007 => c"Transaction is too old to perform reads or be committed",
        1020 => c"Transaction not committed due to conflict with another transaction",
        1021 => c"Transaction may or may not have committed",
        1037 => c"Storage process does not have recent mutations",
        2101 => c"Transaction exceeds byte limit",
        2203 => c"API version not supported",
        _ => c"Another error",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn fdb_error_predicate(predicate: c_int, code: Code) -> c_int {
    let is = match predicate {
        50_001 => code == 1021,
        50_002 => matches!(code, 1007 | 1020 | 1037),
        _ => false,
    };
    c_int::from(is)
}

#[unsafe(no_mangle)]
pub extern "C" fn fdb_select_api_version_impl(runtime: c_int, header: c_int) -> Code {
    if runtime == 730 && header == 730 { 0 } else { 2203 }
}

#[unsafe(no_mangle)]
pub extern "C" fn fdb_get_max_api_version() -> c_int {
    std::env::var("MARULA_FDB_STAND_IN_VERSION").ok().and_then(|v| v.parse().ok()).unwrap_or(730)
}

#[unsafe(no_mangle)]
pub extern "C" fn fdb_get_client_version() -> *const c_char {
    c"7.3.0,stand-in,fdb00b073000000".as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn fdb_setup_network() -> Code {
    0
}

/// Runs until the end of the process, as the real one does where nobody stops it.
#[unsafe(no_mangle)]
pub extern "C" fn fdb_run_network() -> Code {
    loop {
        std::thread::park();
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_create_database(file: *const c_char, out: *mut *mut Database) -> Code {
    let path = unsafe { CStr::from_ptr(file) }.to_str().expect("a path is text").to_owned();
    let Ok(text) = std::fs::read_to_string(&path) else { return 1515 };
    let mut faults = Faults::default();
    for line in text.lines() {
        let (name, number) = line.split_once('=').expect("name = number");
        let number: u32 = number.trim().parse().expect("a number");
        match name.trim() {
            "seed" => faults.seed = u64::from(number),
            "unknown_done" => faults.unknown_done = number,
            "unknown_not_done" => faults.unknown_not_done = number,
            "unknown_late" => faults.unknown_late = number,
            "unavailable" => faults.unavailable = number,
            other => panic!("no such fault: {other}"),
        }
    }
    let mut stores = STORES.lock();
    let sim = stores
        .entry(path)
        .or_insert_with(|| Arc::new(Sim::new(StepClock::new(Duration::from_micros(1)), faults)))
        .clone();
    unsafe { *out = Box::into_raw(Box::new(Database { sim })) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_database_destroy(database: *mut Database) {
    drop(unsafe { Box::from_raw(database) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_database_create_transaction(
    database: *mut Database,
    out: *mut *mut Transaction,
) -> Code {
    let sim = unsafe { &*database }.sim.clone();
    let (commit, stamp) = (Commit::default(), Arc::default());
    unsafe { *out = Box::into_raw(Box::new(Transaction { sim, version: None, commit, stamp })) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_transaction_destroy(transaction: *mut Transaction) {
    drop(unsafe { Box::from_raw(transaction) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_transaction_set_option(
    _: *mut Transaction,
    option: c_int,
    _: *const u8,
    length: c_int,
) -> Code {
    // The timeout, which takes eight bytes; 2006 is invalid_option_value.
    if option == 500 && length == 8 { 0 } else { 2006 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_transaction_set_read_version(transaction: *mut Transaction, at: i64) {
    unsafe { &mut *transaction }.version = Some(at as u64);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_transaction_get_read_version(
    transaction: *mut Transaction,
) -> *mut Future {
    let version = unsafe { &mut *transaction }.version();
    future(version.map(|version| Outcome::Number(version as i64)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_transaction_get(
    transaction: *mut Transaction,
    key: *const u8,
    key_length: c_int,
    is_snapshot: c_int,
) -> *mut Future {
    assert_eq!(is_snapshot, 1, "conflicts are said apart");
    let transaction = unsafe { &mut *transaction };
    let key = unsafe { bytes(key, key_length) };
    let value = transaction.version().and_then(|at| transaction.sim.get(at, &key));
    future(value.map(Outcome::Value))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_transaction_get_range(
    transaction: *mut Transaction,
    start: *const u8,
    start_length: c_int,
    start_or_equal: c_int,
    start_offset: c_int,
    end: *const u8,
    end_length: c_int,
    end_or_equal: c_int,
    end_offset: c_int,
    entries_max: c_int,
    bytes_max: c_int,
    mode: c_int,
    iteration: c_int,
    is_snapshot: c_int,
    is_reverse: c_int,
) -> *mut Future {
    let selectors = [start_or_equal, start_offset, end_or_equal, end_offset];
    assert_eq!(selectors, [0, 1, 0, 1], "both are 'first greater or equal'");
    assert_eq!((mode, iteration, is_snapshot), (-2, 1, 1));
    assert!(entries_max > 0 && bytes_max > 0, "zero is no limit");
    let transaction = unsafe { &mut *transaction };
    let range =
        unsafe { KeyRange { start: bytes(start, start_length), end: bytes(end, end_length) } };
    let limit = BlockLimit { entries_max: entries_max as usize, bytes_max: bytes_max as usize };
    let direction = if is_reverse == 0 { Direction::Forward } else { Direction::Backward };
    let block =
        transaction.version().and_then(|at| transaction.sim.range(at, &range, direction, limit));
    future(block.map(|block| {
        let held = block.entries;
        let raw = held
            .iter()
            .map(|(key, value)| KeyValue {
                key: key.as_ptr(),
                key_length: length(key),
                value: value.as_ptr(),
                value_length: length(value),
            })
            .collect();
        Outcome::Entries { raw, _held: held, has_more: block.has_more }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_transaction_get_estimated_range_size_bytes(
    transaction: *mut Transaction,
    start: *const u8,
    start_length: c_int,
    end: *const u8,
    end_length: c_int,
) -> *mut Future {
    let range =
        unsafe { KeyRange { start: bytes(start, start_length), end: bytes(end, end_length) } };
    let estimate = unsafe { &*transaction }.sim.estimate(&range);
    future(estimate.map(|estimate| Outcome::Number(estimate.bytes.unwrap_or(0) as i64)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_transaction_get_range_split_points(
    transaction: *mut Transaction,
    start: *const u8,
    start_length: c_int,
    end: *const u8,
    end_length: c_int,
    chunk_bytes: i64,
) -> *mut Future {
    let range =
        unsafe { KeyRange { start: bytes(start, start_length), end: bytes(end, end_length) } };
    let sim = &unsafe { &*transaction }.sim;
    let points = sim.estimate(&range).and_then(|estimate| {
        let parts = estimate.bytes.unwrap_or(0).div_ceil(chunk_bytes as u64);
        sim.split_points(&range, parts as usize)
    });
    future(points.map(|points| {
        // The real one gives the ends too.
        let held: Vec<Vec<u8>> =
            std::iter::once(range.start.clone()).chain(points).chain([range.end.clone()]).collect();
        let raw =
            held.iter().map(|key| Key { key: key.as_ptr(), key_length: length(key) }).collect();
        Outcome::Keys { raw, _held: held }
    }))
}

fn push(transaction: *mut Transaction, mutation: Mutation) {
    unsafe { &mut *transaction }.commit.mutations.push(mutation);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_transaction_set(
    transaction: *mut Transaction,
    key: *const u8,
    key_length: c_int,
    value: *const u8,
    value_length: c_int,
) {
    let (key, value) = unsafe { (bytes(key, key_length), bytes(value, value_length)) };
    push(transaction, Mutation::Set(key, value));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_transaction_clear(
    transaction: *mut Transaction,
    key: *const u8,
    key_length: c_int,
) {
    push(transaction, Mutation::Clear(unsafe { bytes(key, key_length) }));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_transaction_clear_range(
    transaction: *mut Transaction,
    start: *const u8,
    start_length: c_int,
    end: *const u8,
    end_length: c_int,
) {
    let range =
        unsafe { KeyRange { start: bytes(start, start_length), end: bytes(end, end_length) } };
    push(transaction, Mutation::ClearRange(range));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_transaction_atomic_op(
    transaction: *mut Transaction,
    key: *const u8,
    key_length: c_int,
    parameter: *const u8,
    parameter_length: c_int,
    kind: c_int,
) {
    let (mut key, parameter) =
        unsafe { (bytes(key, key_length), bytes(parameter, parameter_length)) };
    let mutation = match kind {
        2 => Mutation::Add(key, i64::from_le_bytes(parameter.try_into().expect("8 bytes"))),
        14 => {
            let offset = key.split_off(key.len() - 4);
            let offset = u32::from_le_bytes(offset.try_into().expect("4 bytes")) as usize;
            let suffix = key.split_off(offset + Stamp::BYTES);
            key.truncate(offset);
            Mutation::SetStamped { prefix: key, suffix, value: parameter }
        }
        other => panic!("no such operation: {other}"),
    };
    push(transaction, mutation);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_transaction_add_conflict_range(
    transaction: *mut Transaction,
    start: *const u8,
    start_length: c_int,
    end: *const u8,
    end_length: c_int,
    kind: c_int,
) -> Code {
    let range =
        unsafe { KeyRange { start: bytes(start, start_length), end: bytes(end, end_length) } };
    if range.start > range.end {
        return 2005;
    }
    let commit = &mut unsafe { &mut *transaction }.commit;
    match kind {
        0 => commit.reads.push(Conflict::Range(range)),
        1 => commit.writes.push(Conflict::Range(range)),
        other => panic!("no such conflict: {other}"),
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_transaction_commit(transaction: *mut Transaction) -> *mut Future {
    let transaction = unsafe { &mut *transaction };
    let mut run = || {
        if !transaction.commit.reads.is_empty() {
            transaction.commit.read_version = Some(transaction.version()?);
        }
        let stamp = transaction.sim.commit(&transaction.commit)?;
        *transaction.stamp.lock() = Some(stamp);
        Ok(Outcome::Nothing)
    };
    future(run())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_transaction_get_versionstamp(
    transaction: *mut Transaction,
) -> *mut Future {
    let of = unsafe { &*transaction }.stamp.clone();
    future(Ok(Outcome::Stamp { of, bytes: [0; Stamp::BYTES] }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_destroy(future: *mut Future) {
    drop(unsafe { Box::from_raw(future) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_block_until_ready(_: *mut Future) -> Code {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_get_error(future: *mut Future) -> Code {
    match &unsafe { &*future }.outcome {
        // transaction_cancelled: its transaction was not committed.
        Ok(Outcome::Stamp { of, .. }) if of.lock().is_none() => 1025,
        Ok(_) => 0,
        Err(code) => *code,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_get_int64(future: *mut Future, out: *mut i64) -> Code {
    match &unsafe { &*future }.outcome {
        Ok(Outcome::Number(number)) => unsafe { *out = *number },
        _ => return 4100,
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_get_key(
    future: *mut Future,
    key: *mut *const u8,
    key_length: *mut c_int,
) -> Code {
    match &mut unsafe { &mut *future }.outcome {
        Ok(Outcome::Stamp { of, bytes }) => {
            let stamp = of.lock().expect("it has been committed");
            *bytes = stamp.to_bytes();
            unsafe {
                *key = bytes.as_ptr();
                *key_length = length(bytes);
            }
        }
        _ => return 4100,
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_get_value(
    future: *mut Future,
    is_there: *mut c_int,
    value: *mut *const u8,
    value_length: *mut c_int,
) -> Code {
    match &unsafe { &*future }.outcome {
        Ok(Outcome::Value(found)) => unsafe {
            *is_there = c_int::from(found.is_some());
            if let Some(found) = found {
                *value = found.as_ptr();
                *value_length = length(found);
            }
        },
        _ => return 4100,
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_get_keyvalue_array(
    future: *mut Future,
    first: *mut *const KeyValue,
    count: *mut c_int,
    more: *mut c_int,
) -> Code {
    match &unsafe { &*future }.outcome {
        Ok(Outcome::Entries { raw, has_more, .. }) => unsafe {
            *first = raw.as_ptr();
            *count = c_int::try_from(raw.len()).expect("few entries");
            *more = c_int::from(*has_more);
        },
        _ => return 4100,
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_future_get_key_array(
    future: *mut Future,
    first: *mut *const Key,
    count: *mut c_int,
) -> Code {
    match &unsafe { &*future }.outcome {
        Ok(Outcome::Keys { raw, .. }) => unsafe {
            *first = raw.as_ptr();
            *count = c_int::try_from(raw.len()).expect("few keys");
        },
        _ => return 4100,
    }
    0
}
