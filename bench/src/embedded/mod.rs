//! Engines that run within this process: no server, no connections, no second process to read.
//!
//! An operation is a call here. One caller makes the calls one after another, for any number of
//! connections in a step, and the thread's own CPU clock replaces the server's. Reports show the
//! target as *embedded*: it saves the way to a server and back, so its numbers are a lower limit
//! and not a competitor.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::comparison::{Exercise, Length};
use crate::interrupt;
use crate::operation::{Condition, Operation, Shape};
use crate::record::Sample;
use crate::waits::Waits;

pub(crate) mod tokyo_cabinet;

use tokyo_cabinet::{TokyoCabinet, columns_of};

/// The number of calls between two checks of Ctrl-C and the clock.
const LOOK_EVERY: u64 = 64;

/// Runs an exercise on the engine and measures it.
pub(crate) fn run(exercise: &Exercise, engine: &mut TokyoCabinet) -> Result<Sample, String> {
    if exercise.durable {
        return Err("an embedded engine is not asked to wait for the disk".into());
    }
    let mut source = (exercise.source)();
    let mut operation = Operation::default();
    let mut waits = Waits::default();
    let (mut operations, mut cpu, mut calls) = (0, Duration::ZERO, 0u64);
    let begin = Instant::now();
    let limit = match exercise.length {
        Length::Source => None,
        Length::Seconds(seconds) => Some(Duration::from_secs_f64(seconds)),
    };
    loop {
        operation.clear();
        // The callers take turns, as connections would.
        if !source(calls as usize % exercise.connections, &mut operation) {
            break;
        }
        let shape = &exercise.shapes[operation.shape];
        let (sent, before) = (Instant::now(), thread_cpu());
        perform(engine, shape, &mut operation)?;
        cpu += thread_cpu().saturating_sub(before);
        waits.record(operation.class, sent.elapsed().as_nanos() as u64);
        operations += operation.weight();
        calls += 1;
        if calls.is_multiple_of(LOOK_EVERY) {
            interrupt::check()?;
            if limit.is_some_and(|limit| begin.elapsed() > limit) {
                break;
            }
        }
    }
    Ok(Sample {
        operations,
        seconds: begin.elapsed().as_secs_f64(),
        server_cpu_us: Some(cpu.as_secs_f64() * 1e6 / operations.max(1) as f64),
        latencies: waits.by_name(exercise.classes),
        ..Sample::default()
    })
}

/// Runs an operation and checks its result.
fn perform(
    engine: &mut TokyoCabinet,
    shape: &Shape,
    operation: &mut Operation,
) -> Result<(), String> {
    let table = engine.table()?;
    match *shape {
        Shape::Insert => operation.documents.iter().try_for_each(|document| {
            let (key, columns) = columns_of(document)?;
            table.put(&key, &columns)
        }),
        Shape::Find { conditions: &[Condition::Key], sort: None, skip: 0, limit: 1 } => {
            let found = table.get(&key_of(operation)?);
            operation.found = found.is_some().into();
            operation.check_found()?;
            let (Some(found), Some(content)) = (found, &operation.content) else { return Ok(()) };
            let (key, columns) = columns_of(content)?;
            let is_same = found.len() == columns.len()
                && columns.iter().all(|(name, value)| found.get(name) == Some(value.as_bytes()));
            is_same.then_some(()).ok_or_else(|| format!("the item {key} has other columns"))
        }
        Shape::Update { by: Condition::Key, set } => {
            let key = key_of(operation)?;
            let mut found = table.get(&key).ok_or_else(|| format!("the item {key} is gone"))?;
            for (name, value) in set.iter().zip(&operation.values[1..]) {
                found.set(name, &value.to_string());
            }
            table.put_columns(&key, &found)
        }
        _ => Err("an embedded table is read and changed by key alone: run news or mixed".into()),
    }
}

fn key_of(operation: &Operation) -> Result<String, String> {
    operation.values.first().map(ToString::to_string).ok_or_else(|| "no key is given".into())
}

fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
