//! The time of the simulated store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Tells the time, and lets it pass.
pub trait Clock: Send + Sync + 'static {
    /// The time since some moment before the store was made.
    fn now(&self) -> Duration;

    /// Lets time pass.
    fn pass(&self, time: Duration);
}

/// The machine's time.
pub struct SystemClock {
    started: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock { started: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn pass(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// A time of its own, which passes when it is told to, and a step whenever it is asked for: a run
/// does not depend on the speed of the machine.
pub struct StepClock {
    micros: AtomicU64,
    step: Duration,
}

impl StepClock {
    /// A clock that goes on by `step` at each question.
    pub fn new(step: Duration) -> Self {
        StepClock { micros: AtomicU64::new(0), step }
    }
}

impl Clock for StepClock {
    fn now(&self) -> Duration {
        self.pass(self.step);
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }

    fn pass(&self, time: Duration) {
        self.micros.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }
}
