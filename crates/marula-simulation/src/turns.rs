//! Threads that run one at a time, in an order that a seed determines.

use std::cell::Cell;
use std::sync::Arc;
use std::thread;

use parking_lot::{Condvar, Mutex};

thread_local! {
    /// The number of this thread among those that take turns.
    static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The order of the threads.
pub(crate) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    dice: u64,
    /// The threads that have not ended.
    running: Vec<usize>,
    turn: usize,
}

impl Turns {
    /// Nobody takes turns yet.
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        let dice = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let state = State { dice, running: Vec::new(), turn: 0 };
        Arc::new(Turns { state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Runs functions on threads that take turns, until all have ended. Panics if one has.
    pub(crate) fn run(self: &Arc<Self>, works: Vec<Box<dyn FnOnce() + Send + '_>>) {
        {
            let mut state = self.state.lock();
            state.running = (0..works.len()).collect();
            state.choose();
        }
        thread::scope(|scope| {
            for (number, work) in works.into_iter().enumerate() {
                scope.spawn(move || {
                    NUMBER.set(Some(number));
                    // Dropped also when the work panics, so that the others end.
                    let _place = Place { turns: self, number };
                    self.wait(number);
                    work();
                });
            }
        });
    }

    /// Gives the turn to the thread that the seed chooses, and waits for it to come back. Does
    /// nothing on a thread that takes no turns.
    pub(crate) fn pass(&self) {
        let Some(number) = NUMBER.get() else { return };
        self.state.lock().choose();
        self.changed.notify_all();
        self.wait(number);
    }

    fn wait(&self, number: usize) {
        let mut state = self.state.lock();
        while state.turn != number {
            self.changed.wait(&mut state);
        }
    }
}

impl State {
    fn choose(&mut self) {
        // xorshift64*
        self.dice ^= self.dice >> 12;
        self.dice ^= self.dice << 25;
        self.dice ^= self.dice >> 27;
        let random = (self.dice.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize;
        if !self.running.is_empty() {
            self.turn = self.running[random % self.running.len()];
        }
    }
}

/// A thread among those that take turns.
struct Place<'t> {
    turns: &'t Turns,
    number: usize,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        NUMBER.set(None);
        let mut state = self.turns.state.lock();
        state.running.retain(|number| *number != self.number);
        state.choose();
        self.turns.changed.notify_all();
    }
}
