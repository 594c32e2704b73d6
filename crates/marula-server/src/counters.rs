//! The counters of commands, for `serverStatus` and `top`.
//!
//! Counters are relaxed atomics: their sums are exact, their order is not defined.

mod reads;

use std::sync::atomic::{AtomicU64, Ordering};

use marula_bson::Value;
use marula_db::unit::Examined;

use marula_db::latencies::Latencies;
use marula_operation::pipeline::StageWrites;
use marula_storage::times::Times;

use crate::command::COMMANDS;
use crate::row::{Command, Kind};

pub(crate) use reads::{Concerns, ReadCounters};

/// One counter.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Adds one if `is_counted`.
    #[inline]
    pub fn add_if(&self, is_counted: bool) {
        if is_counted {
            self.add(1);
        }
    }

    /// Adds the sum of another, which is mostly zero.
    #[inline]
    pub fn add_all_of(&self, other: &Counter) {
        let sum = other.get();
        if sum > 0 {
            self.add(sum);
        }
    }

    /// Returns the sum so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The numbers of runs and failures of a command.
#[derive(Default, Debug)]
pub struct CommandCounter {
    /// The time from a request's arrival until its reply was written, for each run of the command's
    /// own code. The wait for a sync comes after that.
    pub times: Times,
    /// Failures.
    pub failed: Counter,
    /// Rejections before the command's own code ran; each is also a failure.
    pub rejected: Counter,
}

impl CommandCounter {
    /// Returns the number of failures of the command's own code, the ones that mongod counts.
    pub fn failed_in_run(&self) -> u64 {
        self.failed.get().saturating_sub(self.rejected.get())
    }
}

/// The numbers of a command's updates in some forms, in `metrics.commands` and `metrics.query`.
#[derive(Default, Debug)]
pub struct UpdateForms {
    /// Updates with `multi`.
    pub many: Counter,
    /// Updates with `arrayFilters`.
    pub array_filters: Counter,
    /// Updates by a pipeline.
    pub pipelines: Counter,
}

impl UpdateForms {
    /// Counts an update.
    pub fn note(&self, is_multi: bool, is_pipeline: bool, has_array_filters: bool) {
        self.many.add_if(is_multi);
        self.pipelines.add_if(is_pipeline);
        self.array_filters.add_if(has_array_filters);
    }

    /// Adds the numbers of others.
    pub fn add(&self, others: &UpdateForms) {
        self.many.add_all_of(&others.many);
        self.pipelines.add_all_of(&others.pipelines);
        self.array_filters.add_all_of(&others.array_filters);
    }
}

/// The validators of a command, in `metrics.commands`.
#[derive(Default, Debug)]
pub struct Validators {
    /// Those that could not be parsed.
    pub failed: Counter,
    /// Those that are a `$jsonSchema`.
    pub json_schemas: Counter,
    /// All but empty ones.
    pub all: Counter,
}

impl Validators {
    /// Counts the validator of a command that has one.
    pub fn note(&self, validator: Option<Value<'_>>, has_failed: bool) {
        let Some(Value::Document(validator)) = validator else { return };
        let Some(first) = validator.iter().next() else { return };
        self.all.add(1);
        self.failed.add_if(has_failed);
        self.json_schemas.add_if(!has_failed && first.name == "$jsonSchema");
    }
}

/// The counters of a server.
pub struct Counters {
    /// `opcounters`; each statement of a write counts.
    pub insert: Counter,
    /// See `insert`.
    pub query: Counter,
    /// See `insert`.
    pub update: Counter,
    /// See `insert`.
    pub delete: Counter,
    /// See `insert`.
    pub get_more: Counter,
    /// See `insert`.
    pub command: Counter,
    /// `opLatencies`.
    pub latencies: Latencies,
    /// `metrics.document.inserted`.
    pub documents_inserted: Counter,
    /// `metrics.document.returned`.
    pub documents_returned: Counter,
    /// `metrics.document.updated`: documents that updates have matched, changed or not.
    pub documents_updated: Counter,
    /// `metrics.document.deleted`.
    pub documents_deleted: Counter,
    /// `metrics.query.deleteManyCount`: statements of `delete` without a limit.
    pub deletes_of_many: Counter,
    /// The forms of `update`'s statements.
    pub update_forms: UpdateForms,
    /// The forms of `findAndModify`'s updates.
    pub find_and_modify_forms: UpdateForms,
    /// The validators of `create`.
    pub create_validators: Validators,
    /// The validators of `collMod`.
    pub coll_mod_validators: Validators,
    /// `metrics.queryExecutor.scanned`: index entries examined.
    pub keys_examined: Counter,
    /// `metrics.queryExecutor.scannedObjects`: documents examined.
    pub documents_examined: Counter,
    /// `metrics.queryExecutor.collectionScans`.
    pub scans: Counter,
    /// The read concerns and read preferences of reads.
    pub reads: ReadCounters,
    /// `metrics.operation.scanAndOrder`: sorts without an index.
    pub sorts: Counter,
    /// `metrics.operation.writeConflicts`.
    pub write_conflicts: Counter,
    /// `metrics.ttl.deletedDocuments`.
    pub ttl_deleted: Counter,
    /// `metrics.ttl.passes`: passes of the TTL monitor over all collections.
    pub ttl_passes: Counter,
    /// `metrics.commands.<UNKNOWN>`.
    pub unknown_commands: Counter,
    /// `asserts.user`: errors sent to clients.
    pub user_errors: Counter,
    /// `metrics.commands`, in the order of [`COMMANDS`].
    by_command: Box<[CommandCounter]>,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            insert: Counter::default(),
            query: Counter::default(),
            update: Counter::default(),
            delete: Counter::default(),
            get_more: Counter::default(),
            command: Counter::default(),
            latencies: Latencies::default(),
            documents_inserted: Counter::default(),
            documents_returned: Counter::default(),
            documents_updated: Counter::default(),
            documents_deleted: Counter::default(),
            deletes_of_many: Counter::default(),
            update_forms: UpdateForms::default(),
            find_and_modify_forms: UpdateForms::default(),
            create_validators: Validators::default(),
            coll_mod_validators: Validators::default(),
            keys_examined: Counter::default(),
            documents_examined: Counter::default(),
            scans: Counter::default(),
            reads: ReadCounters::default(),
            sorts: Counter::default(),
            write_conflicts: Counter::default(),
            ttl_deleted: Counter::default(),
            ttl_passes: Counter::default(),
            unknown_commands: Counter::default(),
            user_errors: Counter::default(),
            by_command: COMMANDS.iter().map(|_| CommandCounter::default()).collect(),
        }
    }
}

impl Counters {
    /// Returns the counter of the command with this index in [`COMMANDS`].
    pub fn of(&self, index: usize) -> &CommandCounter {
        &self.by_command[index]
    }

    /// Returns every command and its counter, by name.
    pub fn by_command(&self) -> impl Iterator<Item = (&'static Command, &CommandCounter)> {
        COMMANDS.iter().copied().zip(&self.by_command)
    }

    /// Returns the forms of a command's updates, if it has any.
    pub fn forms_of(&self, command: &Command) -> Option<&UpdateForms> {
        match command.name {
            "update" => Some(&self.update_forms),
            "findAndModify" => Some(&self.find_and_modify_forms),
            _ => None,
        }
    }

    /// Returns the counters of a command's validators, if it has any.
    pub fn validators_of(&self, command: &Command) -> Option<&Validators> {
        match command.name {
            "create" => Some(&self.create_validators),
            "collMod" => Some(&self.coll_mod_validators),
            _ => None,
        }
    }

    /// Counts the keys and documents that an operation has examined.
    pub fn examined(&self, examined: Examined) {
        if examined.keys > 0 {
            self.keys_examined.add(examined.keys);
        }
        if examined.docs > 0 {
            self.documents_examined.add(examined.docs);
        }
        if examined.scans > 0 {
            self.scans.add(examined.scans);
        }
        if examined.sorts > 0 {
            self.sorts.add(examined.sorts);
        }
    }

    /// Counts the statements of a stage that writes like those of the commands.
    pub fn add_stage_writes(&self, writes: StageWrites) {
        self.insert.add(writes.inserts);
        self.documents_inserted.add(writes.inserted);
        self.update.add(writes.updates);
        self.documents_updated.add(writes.updated);
    }

    /// Counts a command that starts; the commands count the statements of writes themselves.
    pub fn start(&self, kind: Kind) {
        match kind {
            Kind::Query => self.query.add(1),
            Kind::GetMore => self.get_more.add(1),
            Kind::Command => self.command.add(1),
            Kind::Insert | Kind::Update | Kind::Delete => {}
        }
    }
}
