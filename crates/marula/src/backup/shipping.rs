//! Sends the log of a server to where its backups are, every few seconds.
//!
//! Writes are synced here before they are sent: a power failure must not take from this server a
//! write that its backups have. Writes that cannot be sent now are sent later. Where the
//! log was let go before it could be sent, the run of the log has a hole: another begins, and a
//! backup for it to go on from.

use std::time::Instant;

use marula_backup::{Error, Repository, log};
use marula_embedded::{LogFollower, Moved};
use marula_storage::{Stamp, Store as _};
use tracing::{info, warn};

use super::service::Service;
use crate::Failure;

/// A segment is sent when it is about this large, however soon that is.
const SEGMENT_BYTES: usize = 8 << 20;

pub(super) struct Shipping {
    run: String,
    /// The number of the newest write when the server started.
    started_after: u64,
    followed: Option<Followed>,
}

/// A run whose place in the target is known.
struct Followed {
    repository: Repository,
    follower: LogFollower,
    /// Writes that were read and not sent yet.
    first: u64,
    writes: Vec<u8>,
    /// Up to when all is sent.
    until_us: i64,
}

impl Shipping {
    /// Before the server's first write.
    pub(super) fn new(service: &Service) -> Result<Shipping, Failure> {
        let run = service.store.log_run().map_err(|error| error.to_string())?;
        let started_after = service.store.log_position().1;
        Ok(Shipping { run, started_after, followed: None })
    }

    /// Sends until the server ends, and then the rest.
    pub(super) fn run(mut self, service: &Service) {
        loop {
            let is_last = service.is_ending();
            let outcome = self.ship(service);
            let mut state = service.state.lock();
            match outcome {
                Ok(until_us) => {
                    state.log_until_us = Some(until_us);
                    if state.log_failure.take().is_some() {
                        info!("the log is sent again");
                    }
                }
                Err(cause) => {
                    let cause = cause.to_string();
                    if state.log_failure.is_none() {
                        warn!("the log cannot be sent now: {cause}");
                    }
                    state.log_failure = Some(cause);
                }
            }
            if is_last {
                return;
            }
            let next = Instant::now() + service.schedule.log_every;
            while !state.is_ending && Instant::now() < next {
                service.changed.wait_until(&mut state, next);
            }
        }
    }

    /// Sends all that is new; returns up to when all is sent.
    fn ship(&mut self, service: &Service) -> marula_backup::Result<i64> {
        let failed = |error: marula_storage::Error| Error::Io(error.to_string());
        let (until_us, newest) = service.store.log_position();
        service.store.sync(Stamp::of_version(newest)).map_err(failed)?;
        if self.followed.is_none() {
            let followed = self.follow(service)?;
            // Sent writes were synced: a target that has more has them of another server.
            if followed.follower.last() > newest {
                self.begin_again(service)?;
                return Ok(until_us);
            }
            self.followed = Some(followed);
        }
        let followed = self.followed.as_mut().expect("it was just set");
        loop {
            let moved = match followed.writes.len() < SEGMENT_BYTES {
                true => followed.follower.advance(newest).map_err(failed)?,
                // More is read once this is sent.
                false => Moved::UpToDate,
            };
            match moved {
                Moved::Write => {
                    let write = followed.follower.write();
                    if followed.writes.is_empty() {
                        followed.first = write.first;
                    }
                    log::push_write(&mut followed.writes, write.bytes);
                }
                Moved::UpToDate => {
                    let last = followed.follower.last();
                    followed.send(
                        &self.run,
                        last,
                        if last >= newest { Some(until_us) } else { None },
                    )?;
                    if last >= newest {
                        return Ok(until_us);
                    }
                }
                Moved::Hole => {
                    let last = followed.follower.last();
                    followed.send(&self.run, last, None)?;
                    self.begin_again(service)?;
                    return Ok(until_us);
                }
            }
        }
    }

    /// Goes on where the target's log of this run ends.
    fn follow(&self, service: &Service) -> marula_backup::Result<Followed> {
        let repository = service.repository()?;
        let run = log::run(&repository, &self.run)?;
        if let Some(damage) = &run.damage {
            warn!(%damage, "the end of the log at the backups' target is damaged and is written again");
        }
        let last = run.segments.iter().map(|segment| segment.last).max();
        let sent_us = run.segments.iter().map(|segment| segment.until_us).max();
        let until_us = sent_us.max(run.until.map(|(_, until_us)| until_us)).unwrap_or(0);
        let after = match last {
            Some(last) => last,
            // A server that was killed before it had sent its first segment may have made a backup.
            None => log::first_needed_after(&repository, &self.run)?.unwrap_or(self.started_after),
        };
        let follower = service.store.follow_log(after, until_us);
        let follower = follower.map_err(|error| Error::Io(error.to_string()))?;
        Ok(Followed { repository, follower, first: 0, writes: Vec::new(), until_us })
    }

    /// Begins another run after a hole.
    fn begin_again(&mut self, service: &Service) -> marula_backup::Result<()> {
        warn!(
            "a part of the log was gone before it could be sent: moments between the last one that was and the next backup cannot be restored"
        );
        self.followed = None;
        self.started_after = service.store.log_position().1;
        self.run = service.store.begin_log_run().map_err(|error| Error::Io(error.to_string()))?;
        service.make_due();
        Ok(())
    }
}

impl Followed {
    /// Sends the writes that were read, up to the number `last`; nothing is acknowledged before
    /// `until_us` that is not among them. In the middle of what is new that is not said.
    fn send(&mut self, run: &str, last: u64, until_us: Option<i64>) -> marula_backup::Result<()> {
        if !self.writes.is_empty() {
            let sent_us = until_us.unwrap_or(self.until_us);
            log::put_segment(&self.repository, run, (self.first, last), sent_us, &self.writes)?;
            self.writes.clear();
            self.until_us = sent_us;
        }
        // After a segment, too: it shows when the last one is missing.
        if let Some(until_us) = until_us {
            log::put_until(&self.repository, run, last, until_us)?;
            self.until_us = until_us;
        }
        Ok(())
    }
}
