//! The pace of a backup whose process serves clients at the same time.
//!
//! The lowest priority alone does not make a backup harmless: a system may share the processors
//! between sessions first, and only then between the threads of one. So each of its threads also
//! rests between two objects while the rest of the process is busy, and works without a pause
//! otherwise.

use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

use crate::Progress;

/// The process is busy if its other threads take more than this share of one processor.
const BUSY_SHARE: f64 = 0.2;

/// The share of one processor that a thread of the backup takes in a busy process.
const OWN_SHARE: f64 = 0.05;

/// The longest rest, and the time after which a rest checks whether the backup was cancelled.
const REST_MAX: Duration = Duration::from_secs(5);
const REST_STEP: Duration = Duration::from_millis(50);

/// The processor time of all threads of the backup, and of the process, when an object was last
/// finished.
#[derive(Default, Debug)]
pub(crate) struct Pace {
    seen: Mutex<Option<Seen>>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Instant,
    process: Duration,
    /// The processor time of the backup's threads since then.
    own: Duration,
}

/// The processor time of a thread at the beginning of an object.
pub(crate) struct Begun(Duration);

impl Pace {
    /// Notes the beginning of an object.
    pub(crate) fn begin() -> Begun {
        Begun(time(ClockId::ThreadCPUTime))
    }

    /// Rests after an object, if the process is busy.
    pub(crate) fn rest(&self, begun: &Begun, progress: &Progress) {
        let own = time(ClockId::ThreadCPUTime).saturating_sub(begun.0);
        let rest = self.rest_after(own, Instant::now(), time(ClockId::ProcessCPUTime));
        let until = Instant::now() + rest;
        while !progress.is_ended() && Instant::now() < until {
            thread::sleep(REST_STEP.min(until.saturating_duration_since(Instant::now())));
        }
    }

    /// The rest after an object that took a thread `own` of processor time; `process` is that of
    /// the whole process at the time `now`.
    fn rest_after(&self, own: Duration, now: Instant, process: Duration) -> Duration {
        let mut seen = self.seen.lock();
        let before = seen.map(|seen| Seen { own: seen.own + own, ..seen });
        *seen = Some(Seen { at: now, process, own: Duration::ZERO });
        let Some(before) = before else { return Duration::ZERO };
        let others = process.saturating_sub(before.process).saturating_sub(before.own);
        let passed = now.saturating_duration_since(before.at);
        match others.as_secs_f64() > BUSY_SHARE * passed.as_secs_f64() {
            true => own.mul_f64(1.0 / OWN_SHARE - 1.0).min(REST_MAX),
            false => Duration::ZERO,
        }
    }
}

fn time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_rests_while_others_of_the_process_are_busy() {
        let ms = Duration::from_millis;
        let pace = Pace::default();
        let start = Instant::now();
        assert_eq!(pace.rest_after(ms(40), start, ms(1000)), ms(0), "nothing is known yet");
        // Alone: the process has done what this thread has done.
        assert_eq!(pace.rest_after(ms(40), start + ms(40), ms(1040)), ms(0));
        // Two threads of the backup, of which one has been at its object for longer.
        assert_eq!(pace.rest_after(ms(30), start + ms(60), ms(1072)), ms(0));
        assert_eq!(pace.rest_after(ms(10), start + ms(100), ms(1180)), ms(190));
        assert_eq!(pace.rest_after(ms(1000), start + ms(1100), ms(3000)), REST_MAX);
    }

    #[test]
    fn a_cancelled_backup_does_not_rest() {
        let pace = Pace::default();
        let progress = Progress::default();
        progress.end();
        let begun = Begun(Duration::ZERO);
        let start = Instant::now();
        pace.rest(&begun, &progress);
        pace.rest(&begun, &progress);
        assert!(start.elapsed() < REST_MAX);
    }
}
