//! Every sort runs with memory for all rows, for some and for almost none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use marula_error::{Result, codes};

use super::*;
use crate::context::Interrupt;
use crate::spill::memory::MemoryDisk;
use crate::spill::share::tests::Left;
use crate::spill::{Limits, TempFile};

fn context(disk: Option<Arc<dyn Disk>>) -> Context {
    Context { limits: Limits { disk, ..Limits::default() }, ..Context::default() }
}

fn sort(
    rows: &[(Vec<u8>, u32)],
    bytes_max: usize,
    wanted: Option<u64>,
    disk: Option<Arc<dyn Disk>>,
) -> Result<(Vec<(Vec<u8>, u32)>, usize)> {
    let mut sort = ExternalSort::new(&context(disk), bytes_max, wanted);
    for (key, value) in rows {
        let [a, b, c, d] = value.to_le_bytes();
        sort.push(key, &[&[a], &[b, c, d]])?;
    }
    let spills = sort.spills();
    let mut sorted = sort.finish()?;
    let mut out = Vec::new();
    while sorted.advance()? {
        let value = sorted.value().try_into().expect("a value has four bytes");
        out.push((sorted.key().to_vec(), u32::from_le_bytes(value)));
    }
    assert!(!sorted.advance()?, "the end stays the end");
    Ok((out, spills))
}

/// Returns rows whose keys repeat, numbered in the order of arrival.
fn rows(count: u32) -> Vec<(Vec<u8>, u32)> {
    (0..count).map(|n| (((n * 7_919) % 997).to_be_bytes()[1..].to_vec(), n)).collect()
}

#[test]
fn the_order_does_not_depend_on_memory() {
    let rows = rows(5_000);
    let mut expected = rows.clone();
    expected.sort();
    for (bytes_max, least_spills) in [(usize::MAX, 0), (100_000, 2), (2_000, 100), (0, 5_000)] {
        for wanted in [None, Some(5_000), Some(700), Some(10), Some(1), Some(0)] {
            let (found, spills) =
                sort(&rows, bytes_max, wanted, Some(Arc::new(MemoryDisk))).unwrap();
            let wanted_count = wanted.map_or(5_000, |wanted| wanted as usize);
            assert_eq!(found, expected[..wanted_count], "{bytes_max} bytes, {wanted:?} wanted");
            if wanted.is_none() {
                assert!(spills >= least_spills, "{spills} spills");
            }
        }
    }
}

#[test]
fn without_a_disk_memory_is_all() {
    let rows = rows(1_000);
    assert!(sort(&rows, 1_000_000, None, None).is_ok());
    let error = sort(&rows, 10_000, None, None).unwrap_err();
    assert_eq!(error.code(), codes::QueryExceededMemoryLimitNoDiskUseAllowed);
    assert_eq!(
        error.message(),
        "Sort exceeded memory limit of 10000 bytes, but did not opt in to external sorting."
    );
    let error = sort(&rows, 10_000, Some(900), None).unwrap_err();
    assert!(error.message().ends_with("Aborting operation. Pass allowDiskUse:true to opt in."));
    // A few of many rows need little memory.
    assert!(sort(&rows, 10_000, Some(10), None).is_ok());
}

#[test]
fn rows_of_any_size_come_back() {
    for size in [0, 1, 64 * 1024 - 9, 64 * 1024, 1_000_000] {
        let rows: Vec<_> = (0..4u32).rev().map(|n| (vec![n as u8; size], n)).collect();
        let mut expected = rows.clone();
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        let (found, _) = sort(&rows, 1, None, Some(Arc::new(MemoryDisk))).unwrap();
        assert_eq!(found, expected);
    }
}

/// A disk that fails, or loses data.
struct Broken {
    full: bool,
}

struct BrokenFile(bool, u64);

impl Disk for Broken {
    fn create(&self) -> Result<Box<dyn TempFile>> {
        Ok(Box::new(BrokenFile(self.full, 0)))
    }
}

impl TempFile for BrokenFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.1 += bytes.len() as u64;
        if self.0 && self.1 > 10_000 { Err(too_much_memory(0)) } else { Ok(()) }
    }

    fn read_at(&self, _: u64, bytes: &mut [u8]) -> Result<()> {
        bytes.fill(0xA5);
        Ok(())
    }
}

#[test]
fn errors_of_the_disk_are_reported() {
    let rows = rows(5_000);
    assert!(sort(&rows, 10_000, None, Some(Arc::new(Broken { full: true }))).is_err());
    let error = sort(&rows, 10_000, None, Some(Arc::new(Broken { full: false }))).unwrap_err();
    assert_eq!(error.message(), "a temporary file is damaged");
}

#[test]
fn a_server_short_of_memory_makes_a_sort_use_the_disk() {
    let left = Arc::new(AtomicUsize::new(usize::MAX));
    let _metered = meter::begin(Interrupt::new(Left(Arc::clone(&left))));
    let rows = rows(50_000);
    let mut expected = rows.clone();
    expected.sort();
    for (bytes, least_spills) in [(usize::MAX, 0), (0, 2)] {
        left.store(bytes, Ordering::Relaxed);
        for wanted in [None, Some(50_000)] {
            let disk = Some(Arc::new(MemoryDisk) as Arc<dyn Disk>);
            let (found, spills) = sort(&rows, usize::MAX, wanted, disk).unwrap();
            assert_eq!(found, expected);
            assert!(spills >= least_spills && (spills == 0) == (least_spills == 0), "{spills}");
        }
    }
    let error = sort(&rows, usize::MAX, None, None).unwrap_err();
    assert_eq!(error.code(), codes::ExceededMemoryLimit);
}
