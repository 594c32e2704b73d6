//! Executes the steps of a comparison on every server in turn: A B A B, a step at a time.
//!
//! A round is all steps once, on fresh collections. Within a round each step runs on every server
//! before the next one begins, so that a slow minute of the machine affects all servers; medians
//! are over rounds.

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::comparison::{Action, Comparison, Length, Sizes, Step};
use crate::exercise;
use crate::interrupt;
use crate::record::{Record, Sample};
use crate::target::Target;

/// The parameters of a comparison's run.
pub(crate) struct Plan<'a> {
    pub(crate) comparison: &'static Comparison,
    pub(crate) sizes: Sizes,
    pub(crate) runs: usize,
    /// The command line, for the record.
    pub(crate) command: &'a str,
    /// The folder of the record.
    pub(crate) out: &'a Path,
}

/// Runs a comparison and keeps its record up to date on disk.
///
/// Errors: a wrong reply, a server that fails, Ctrl-C; the measurements until then are in the
/// record.
pub(crate) fn run(plan: &Plan, targets: &mut [Target]) -> Result<(), String> {
    let comparison = plan.comparison;
    let mut record = Record::begin(comparison, &plan.sizes, plan.runs, plan.command, targets);
    let steps = (comparison.steps)(&plan.sizes);
    let progress = Progress::new(steps.len() * targets.len() * plan.runs);
    let outcome = (0..plan.runs).try_for_each(|round| {
        steps.iter().try_for_each(|step| {
            for (place, target) in targets.iter_mut().enumerate() {
                interrupt::check()?;
                let runs = plan.runs;
                progress.begin(&format!(
                    "{}: {} on {} (run {} of {runs})",
                    comparison.name,
                    step.name,
                    target.name,
                    round + 1
                ));
                let sample = take(step, target, &plan.sizes).map_err(|error| {
                    match error == interrupt::MESSAGE {
                        true => error,
                        false => format!(
                            "{}, {} on {}: {error}",
                            comparison.name, step.name, target.name
                        ),
                    }
                })?;
                progress.end(&sample);
                if let (Some(group), Some(sample)) = (step.group, sample) {
                    record.add(group, &step.name, step.x, place, sample);
                }
            }
            if step.group.is_some() { record.save(plan.out) } else { Ok(()) }
        })
    });
    progress.finish();
    record.stopped = outcome.as_ref().err().cloned();
    record.save(plan.out)?;
    outcome
}

/// Executes one step; returns a sample if the step measures.
fn take(step: &Step, target: &mut Target, sizes: &Sizes) -> Result<Option<Sample>, String> {
    // With steps of a tenth of a second only the function is tested: nothing is waited for.
    let timeout = if sizes.seconds < 0.5 { Duration::ZERO } else { Duration::from_secs(20) };
    match &step.action {
        Action::Create(collection, indexes) => {
            let mut admin = target.admin()?;
            admin.create(collection)?;
            indexes.iter().try_for_each(|index| admin.index(collection, index))?;
            Ok(None)
        }
        Action::Settle(collection) => {
            let mut admin = target.admin()?;
            admin.analyze(collection)?;
            admin.flush()?;
            target.settle(timeout);
            Ok(None)
        }
        Action::Build(collection, index) => {
            let mut admin = target.admin()?;
            let written = target.written_bytes();
            let (begin, cpu) = (Instant::now(), target.cpu_ns());
            admin.index(collection, index)?;
            let seconds = begin.elapsed().as_secs_f64();
            let cpu_us = (target.cpu_ns() - cpu) as f64 / 1000.0;
            Ok(Some(Sample {
                operations: 1,
                seconds,
                server_cpu_us: target.is_read().then_some(cpu_us),
                memory_bytes: target.memory_bytes(),
                written_bytes: target
                    .written_bytes()
                    .zip(written)
                    .map(|(after, before)| after - before),
                ..Sample::default()
            }))
        }
        Action::Sizes(collection) => {
            let mut admin = target.admin()?;
            admin.compact(collection)?;
            admin.flush()?;
            target.settle(timeout);
            let (data, index) = admin.sizes(collection)?;
            Ok(Some(Sample {
                data_bytes: Some(data),
                index_bytes: Some(index),
                folder_bytes: target.disk_bytes(),
                memory_bytes: target.memory_bytes(),
                ..Sample::default()
            }))
        }
        Action::Exercise(exercise) => {
            let sample = exercise::run(exercise, target)?;
            // The remaining work of a load must not run during the next server's step.
            if matches!(exercise.length, Length::Source) {
                target.settle(timeout);
            }
            Ok(Some(sample))
        }
    }
}

/// A bar on a terminal, else a line for each step.
struct Progress {
    bar: ProgressBar,
    lines: bool,
}

impl Progress {
    fn new(steps: usize) -> Progress {
        let lines = !std::io::stderr().is_terminal();
        let bar = if lines { ProgressBar::hidden() } else { ProgressBar::new(steps as u64) };
        let style = "{spinner} [{elapsed_precise}] {bar:30} {pos}/{len} {wide_msg}";
        bar.set_style(ProgressStyle::with_template(style).expect("the template is fixed"));
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress { bar, lines }
    }

    fn begin(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        if self.lines {
            eprint!("{what}");
        }
    }

    fn end(&self, sample: &Option<Sample>) {
        self.bar.inc(1);
        if self.lines {
            match sample {
                Some(sample) if sample.operations > 0 => eprintln!(
                    ": {:.0}/s, server {:.1} µs, client {:.1} µs",
                    sample.per_second(),
                    sample.server_cpu_us.unwrap_or(0.0),
                    sample.client_cpu_us
                ),
                _ => eprintln!(),
            }
        }
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
