//! One exercise on one server: a source of operations, spoken over a wire by the load generator.

use std::time::Duration;

use crate::comparison::{Exercise, Length, Source};
use crate::embedded;
use crate::load::{self, Answer, Load, Traffic};
use crate::operation::Operation;
use crate::record::Sample;
use crate::target::Target;
use crate::wire::Wire;

/// The timeout of a reply: a scan or a batch of a large comparison may take minutes.
const TIMEOUT: Duration = Duration::from_secs(900);

/// Runs an exercise and measures it.
pub(crate) fn run(exercise: &Exercise, target: &mut Target) -> Result<Sample, String> {
    if let Some(engine) = target.embedded() {
        return embedded::run(exercise, &mut engine.borrow_mut());
    }
    let mut spoken = Spoken {
        wire: target.wire(exercise.collection, exercise.shapes, exercise.durable),
        source: (exercise.source)(),
        under_way: (0..exercise.connections).map(|_| Operation::default()).collect(),
        out: Vec::new(),
    };
    // A second wire creates the connections: the first one is in use.
    let wire = target.wire(exercise.collection, exercise.shapes, exercise.durable);
    let connect = || wire.connect();
    let (warm_up, time) = match exercise.length {
        Length::Source => (Duration::ZERO, None),
        Length::Seconds(seconds) => {
            (Duration::from_secs_f64(seconds / 4.0), Some(Duration::from_secs_f64(seconds)))
        }
    };
    let connections = exercise.connections;
    let load = Load { connect: &connect, connections, warm_up, time, timeout: TIMEOUT };
    let written = target.written_bytes();
    let driven = load::drive(&load, &mut spoken, &mut || target.cpu_ns())?;
    let written = target.written_bytes().zip(written).map(|(after, before)| after - before);

    let operations = driven.operations.max(1) as f64;
    Ok(Sample {
        operations: driven.operations,
        seconds: driven.seconds,
        server_cpu_us: target.is_read().then(|| driven.cpu_ns as f64 / 1000.0 / operations),
        client_cpu_us: driven.client_ns as f64 / 1000.0 / operations,
        latencies: driven.waits.by_name(exercise.classes),
        memory_bytes: target.memory_bytes(),
        written_bytes: written,
        ..Sample::default()
    })
}

/// Operations as traffic of the load generator.
struct Spoken {
    wire: Box<dyn Wire>,
    source: Source,
    /// The operation of each connection.
    under_way: Vec<Operation>,
    out: Vec<u8>,
}

impl Traffic for Spoken {
    fn request(&mut self, connection: usize) -> Option<&[u8]> {
        let operation = &mut self.under_way[connection];
        operation.clear();
        if !(self.source)(connection, operation) {
            return None;
        }
        self.out.clear();
        self.wire.encode(connection, operation, &mut self.out);
        Some(&self.out)
    }

    fn whole(&self, reply: &[u8]) -> bool {
        self.wire.whole(reply)
    }

    fn answer(&mut self, connection: usize, reply: &[u8]) -> Result<Answer, String> {
        self.out.clear();
        let operation = &mut self.under_way[connection];
        Ok(match self.wire.check(connection, operation, reply, &mut self.out)? {
            true => Answer::More,
            false => Answer::Done { class: operation.class, count: operation.weight() },
        })
    }

    fn more(&mut self, _: usize) -> &[u8] {
        &self.out
    }
}
