//! The time of the simulated store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A source of time that can also let time pass.
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

/// A time of its own, which passes on request, and by a step whenever it is read: a run
/// does not depend on the speed of the machine.
pub struct StepClock {
    micros: AtomicU64,
    step: Duration,
}

impl StepClock {
    /// A clock that goes on by `step` each time it is read.
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
