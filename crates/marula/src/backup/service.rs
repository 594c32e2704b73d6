//! Backups within a server: those that clients ask for, and those of the schedule.
//!
//! A backup is made by threads that give way to all others, from a checkpoint, one at a time. With
//! a schedule two more threads run: `backups` makes one when it is time to and prunes after it, and
//! `backup-log` sends the log ([`shipping`](super::shipping)).

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use marula_backup::create::{Extent, Known};
use marula_backup::manifest::{LogStart, Moment};
use marula_backup::prune::Retention;
use marula_backup::{Error, Manifest, Progress, Repository};
use marula_bson::{DocWriter, Value, doc_fields, long};
use marula_embedded::Embedded;
use marula_server::backup::{BackupFailure, BackupMade, BackupRequest, Backups};
use parking_lot::{Condvar, Mutex};
use tracing::{error, info, warn};

use super::create::{extent, source};
use super::schedule::ScheduleSettings;
use super::shipping::Shipping;
use super::{read_key, threads};
use crate::Failure;

/// The time between two checks whether the work must end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A backup of the schedule that failed is tried again after this.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// The time that the end of a server waits for the last piece of the log to be sent.
const LAST_SHIPMENT_MAX: Duration = Duration::from_secs(10);
/// Threads that make backups give way to all others.
const NICE: i32 = 19;

/// Makes the backups of one server.
pub(crate) struct Service {
    pub(super) store: Arc<Embedded>,
    dbpath: PathBuf,
    pub(super) schedule: ScheduleSettings,
    /// The backup that is being made.
    running: Mutex<Option<Running>>,
    pub(super) state: Mutex<State>,
    /// Notified when the server ends, and when a backup is due.
    pub(super) changed: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Clone)]
struct Running {
    target: String,
    progress: Arc<Progress>,
}

/// How the schedule does.
#[derive(Default)]
pub(super) struct State {
    pub(super) is_ending: bool,
    /// When the next backup is to be made.
    pub(super) due: Option<Instant>,
    /// The last backup, its moment, and the last failure since.
    last: Option<(String, i64)>,
    failure: Option<String>,
    /// Up to when the log was sent, and why it is not sent now.
    pub(super) log_until_us: Option<i64>,
    pub(super) log_failure: Option<String>,
}

impl Service {
    /// Starts the service of a store; its schedule's target is looked at first.
    ///
    /// Errors: the target is none or another key's, or the key file cannot be read. A target that
    /// cannot be reached now is waited for.
    pub(crate) fn start(
        store: Arc<Embedded>,
        dbpath: PathBuf,
        schedule: ScheduleSettings,
    ) -> Result<Arc<Service>, Failure> {
        let service = Arc::new(Service {
            store,
            dbpath,
            schedule,
            running: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
            threads: Mutex::default(),
        });
        if service.schedule.to.is_some() {
            match service.repository() {
                Ok(_) => {}
                Err(Error::Target(cause)) => warn!("backups are not made yet: {cause}"),
                Err(cause) => return Err(cause.to_string()),
            }
            let failed = |error| format!("cannot start the thread of backups: {error}");
            let shipping = Shipping::new(&service)?;
            let own = service.clone();
            let log = thread::Builder::new().name("backup-log".to_owned());
            let log = log.spawn(move || shipping.run(&own)).map_err(failed)?;
            let own = service.clone();
            let backups = thread::Builder::new().name("backups".to_owned());
            let backups = backups.spawn(move || own.keep_schedule()).map_err(failed)?;
            service.threads.lock().extend([log, backups]);
        }
        Ok(service)
    }

    /// Ends it: what is being made is given up, and the rest of the log is sent.
    pub(crate) fn stop(&self) {
        self.state.lock().is_ending = true;
        if let Some(running) = &*self.running.lock() {
            running.progress.end();
        }
        self.changed.notify_all();
        let until = Instant::now() + LAST_SHIPMENT_MAX;
        for thread in self.threads.lock().drain(..) {
            while !thread.is_finished() && Instant::now() < until {
                thread::sleep(LOOK_EVERY);
            }
            if !thread.is_finished() {
                // It goes on from there at the next start.
                warn!("the last of the log could not be sent to where backups are kept");
            } else if thread.join().is_err() {
                error!("a thread of backups has panicked");
            }
        }
    }

    /// The repository of the schedule.
    pub(super) fn repository(&self) -> marula_backup::Result<Repository> {
        let target = self.schedule.to.as_deref().expect("there is a schedule");
        let key = read_key(self.schedule.key_file.as_deref()).map_err(Error::Key)?;
        Repository::open_or_make(target, key)
    }

    /// Whether the server ends.
    pub(super) fn is_ending(&self) -> bool {
        self.state.lock().is_ending
    }

    /// Has a backup made soon: what was sent of the log goes on from none.
    pub(super) fn make_due(&self) {
        self.state.lock().due = Some(Instant::now());
        self.changed.notify_all();
    }

    fn keep_schedule(&self) {
        give_way();
        let known = Known::default();
        self.make_due();
        loop {
            {
                let mut state = self.state.lock();
                while !state.is_ending && state.due.is_none_or(|due| due > Instant::now()) {
                    match state.due {
                        Some(due) => {
                            self.changed.wait_until(&mut state, due);
                        }
                        None => self.changed.wait(&mut state),
                    }
                }
                if state.is_ending {
                    return;
                }
                // A hole that is found from here on asks for another one.
                state.due = None;
            }
            let outcome = self.make_scheduled(&known);
            let mut state = self.state.lock();
            let next = match outcome {
                Ok(manifest) => {
                    state.last = Some((manifest.id, manifest.moment.from_us));
                    state.failure = None;
                    self.schedule.every
                }
                Err(Error::Ended) if state.is_ending => return,
                Err(cause) => {
                    warn!("a backup could not be made, and is tried again soon: {cause}");
                    state.failure = Some(cause.to_string());
                    RETRY_AFTER.min(self.schedule.every)
                }
            };
            let next = Instant::now() + next;
            state.due = Some(state.due.map_or(next, |due| due.min(next)));
        }
    }

    /// Makes a backup of the schedule and prunes.
    fn make_scheduled(&self, known: &Known) -> marula_backup::Result<Manifest> {
        let repository = self.repository()?;
        let progress = self.begin(repository.shown())?;
        let _running = Ending(self);
        let manifest = self.make(&repository, Extent::Incremental, known, true, &progress)?;
        let retention = Retention { window_us: long(self.schedule.keep.as_micros()), count_min: 1 };
        let now_us = self.store.log_position().0;
        match marula_backup::prune(&repository, retention, now_us, false, &progress) {
            Ok(pruned) if pruned.backups.is_empty() => {}
            Ok(pruned) => {
                let (backups, objects) = (pruned.backups.len(), pruned.objects);
                info!(backups, objects, "old backups were removed");
            }
            // The backup is there all the same.
            Err(cause) => warn!("old backups could not be removed, and are later: {cause}"),
        }
        Ok(manifest)
    }

    /// Notes that a backup is being made; one at a time.
    fn begin(&self, target: &str) -> marula_backup::Result<Arc<Progress>> {
        let mut running = self.running.lock();
        if running.is_some() {
            return Err(Error::Refused(
                "a backup is being made already: try again later".to_owned(),
            ));
        }
        let progress = Arc::new(Progress::beside_others());
        *running = Some(Running { target: target.to_owned(), progress: progress.clone() });
        drop(running);
        // The end of the server may have come before the backup was noted.
        if self.is_ending() {
            progress.end();
        }
        Ok(progress)
    }

    /// Makes a backup; with `has_log` it is one that the log goes on from.
    fn make(
        &self,
        repository: &Repository,
        extent: Extent,
        known: &Known,
        has_log: bool,
        progress: &Progress,
    ) -> marula_backup::Result<Manifest> {
        let failed = |error: marula_storage::Error| Error::Io(error.to_string());
        let run = if has_log { Some(self.store.log_run().map_err(failed)?) } else { None };
        let (from_us, sequence) = self.store.log_position();
        let checkpoint = self.store.own_checkpoint().map_err(failed)?;
        let (until_us, _) = self.store.log_position();
        let moment = Moment { from_us, until_us };
        let mut source = source(checkpoint.path(), &self.dbpath, moment).map_err(Error::Io)?;
        source.log = run.map(|run| LogStart { run, sequence });
        let manifest =
            marula_backup::create(repository, &source, extent, known, threads(), progress)?;
        info!(
            id = manifest.id,
            to = repository.shown(),
            bytes = manifest.bytes,
            sent_bytes = manifest.sent_bytes,
            "a backup was made"
        );
        Ok(manifest)
    }

    /// Makes a backup that a client asked for.
    fn make_asked(
        &self,
        wanted: &BackupRequest,
        target: &str,
        progress: &Progress,
    ) -> marula_backup::Result<(Manifest, String)> {
        let own = self.schedule.to.as_deref();
        let is_own = own.is_some_and(|own| marula_backup::target::is_same(own, target));
        let key_file = wanted.key_file.as_ref().map(PathBuf::from);
        let key_file = match is_own {
            true => key_file.or_else(|| self.schedule.key_file.clone()),
            false => key_file,
        };
        let key = read_key(key_file.as_deref()).map_err(Error::Key)?;
        let repository = Repository::open_or_make(target, key)?;
        let known = Known::default();
        let manifest = self.make(&repository, extent(wanted.is_full), &known, is_own, progress)?;
        Ok((manifest, repository.shown().to_owned()))
    }
}

impl Backups for Service {
    fn create(
        &self,
        wanted: &BackupRequest,
        go_on: &dyn Fn() -> marula_error::Result<()>,
    ) -> Result<BackupMade, BackupFailure> {
        let target = wanted.target.as_deref().or(self.schedule.to.as_deref());
        let target = target.ok_or_else(|| {
            BackupFailure::Refused(
                "it is not said where to: to: '<folder or object store>'".to_owned(),
            )
        })?;
        let shown = marula_backup::target::shown(target);
        let progress = self.begin(&shown).map_err(failure)?;
        let _running = Ending(self);
        let mut ended = None;
        let made = thread::scope(|scope| {
            let builder = thread::Builder::new().name("backup".to_owned());
            let work = builder.spawn_scoped(scope, || {
                give_way();
                self.make_asked(wanted, target, &progress)
            });
            let work =
                work.map_err(|error| Error::Io(format!("no thread can be started: {error}")))?;
            while !work.is_finished() {
                if ended.is_none()
                    && let Err(error) = go_on()
                {
                    progress.end();
                    ended = Some(error);
                }
                thread::sleep(LOOK_EVERY);
            }
            work.join().unwrap_or_else(|_| Err(Error::Io("a thread of it has panicked".to_owned())))
        });
        match (made, ended) {
            (Ok((manifest, target)), _) => Ok(BackupMade {
                id: manifest.id,
                target,
                moment_ms: manifest.moment.from_us / 1000,
                files: manifest.files.len() as u64,
                bytes: manifest.bytes,
                sent_bytes: manifest.sent_bytes,
                sent_objects: manifest.sent_objects,
            }),
            (Err(_), Some(error)) => Err(BackupFailure::Ended(error)),
            (Err(error), None) => Err(failure(error)),
        }
    }

    fn status(&self, out: &mut DocWriter<'_>) {
        if let Some(Running { target, progress }) = self.running.lock().clone() {
            let mut running = out.begin_doc("running");
            doc_fields!(&mut running;
                "to": target.as_str(),
                "bytes": long(progress.total()),
                "doneBytes": long(progress.done()),
                "sentBytes": long(progress.sent()),
                "sentObjects": long(progress.objects()),
            );
        }
        let Some(to) = &self.schedule.to else { return };
        let state = self.state.lock();
        let mut schedule = out.begin_doc("schedule");
        let seconds = |duration: Duration| long(duration.as_secs());
        doc_fields!(&mut schedule;
            "to": marula_backup::target::shown(to).as_str(),
            "everySecs": seconds(self.schedule.every),
            "keepSecs": seconds(self.schedule.keep),
            "logEverySecs": seconds(self.schedule.log_every),
        );
        if let Some((id, moment_us)) = &state.last {
            schedule.append("lastBackup", id.as_str());
            schedule.append("lastMoment", Value::DateTime(moment_us / 1000));
        }
        if let Some(failure) = &state.failure {
            schedule.append("lastError", failure.as_str());
        }
        if let Some(until_us) = state.log_until_us {
            schedule.append("logUntil", Value::DateTime(until_us / 1000));
        }
        if let Some(failure) = &state.log_failure {
            schedule.append("logError", failure.as_str());
        }
    }
}

/// Says at its end that no backup is being made.
struct Ending<'s>(&'s Service);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        *self.0.running.lock() = None;
    }
}

/// Lets every other thread of the machine go first; threads that this one starts do so too.
fn give_way() {
    // A system that refuses makes backups as quickly as it does everything else.
    let _ = rustix::process::setpriority_process(None, NICE);
}

fn failure(error: Error) -> BackupFailure {
    match error {
        Error::Refused(_) | Error::Key(_) => BackupFailure::Refused(error.to_string()),
        _ => BackupFailure::Failed(error.to_string()),
    }
}
