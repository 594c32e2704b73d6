//! Statistics of replication. The set has one member, so that most counters are zero.

use marula_bson::{DocWriter, doc_fields};

use super::{Section, long};
use crate::command::hello;

pub(super) fn default_concerns(section: &Section<'_>, out: &mut DocWriter<'_>) {
    section.server.default_concerns.append(false, out);
}

/// Writes zeros: a set of one member holds no elections.
pub(super) fn elections(_: &Section<'_>, out: &mut DocWriter<'_>) {
    let reasons =
        ["stepUpCmd", "priorityTakeover", "catchUpTakeover", "electionTimeout", "freezeTimeout"];
    for reason in reasons {
        let mut one = out.begin_doc(reason);
        doc_fields!(one; "called": 0_i64, "successful": 0_i64);
    }
    doc_fields!(out;
        "numStepDownsCausedByHigherTerm": 0_i64,
        "numCatchUps": 0_i64,
        "numCatchUpsSucceeded": 0_i64,
        "numCatchUpsAlreadyCaughtUp": 0_i64,
        "numCatchUpsSkipped": 0_i64,
        "numCatchUpsTimedOut": 0_i64,
        "numCatchUpsFailedWithError": 0_i64,
        "numCatchUpsFailedWithNewTerm": 0_i64,
        "numCatchUpsFailedWithReplSetAbortPrimaryCatchUpCmd": 0_i64,
        "averageCatchUpOps": 0.0,
    );
}

/// Writes zeros: there is no other member whose writes would be applied.
pub(super) fn opcounters(_: &Section<'_>, out: &mut DocWriter<'_>) {
    doc_fields!(out;
        "insert": 0_i64, "query": 0_i64, "update": 0_i64, "delete": 0_i64, "getmore": 0_i64, "command": 0_i64,
    );
}

pub(super) fn oplog_truncation(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let activity = section.server.db.activity();
    doc_fields!(out;
        "totalTimeProcessingMicros": 0_i64,
        "processingMethod": "scanning",
        "totalTimeTruncatingMicros": long(activity.oplog_trim_us.get()),
        "truncateCount": long(activity.oplog_trims.get()),
    );
}

pub(super) fn repl(section: &Section<'_>, out: &mut DocWriter<'_>) {
    let options = &section.server.options;
    let Some(name) = &options.repl_set else { return };
    hello::write_member(section.server, out, name, "isWritablePrimary");
    let blocks = section.server.db.blocks_user_writes();
    doc_fields!(out; "rbid": 1, "primaryOnlyServices": {}, "userWriteBlockMode": if blocks { 2 } else { 1 });
}

/// Writes zeros: this server does not migrate databases between clusters.
pub(super) fn tenant_migrations(_: &Section<'_>, out: &mut DocWriter<'_>) {
    doc_fields!(out;
        "currentMigrationsDonating": 0_i64,
        "currentMigrationsReceiving": 0_i64,
        "totalSuccessfulMigrationsDonated": 0_i64,
        "totalSuccessfulMigrationsReceived": 0_i64,
        "totalFailedMigrationsDonated": 0_i64,
        "totalFailedMigrationsReceived": 0_i64,
    );
}

/// Writes zeros: this server has no transactions over several shards.
pub(super) fn two_phase_commits(_: &Section<'_>, out: &mut DocWriter<'_>) {
    doc_fields!(out;
        "totalCreated": 0_i64,
        "totalStartedTwoPhaseCommit": 0_i64,
        "totalAbortedTwoPhaseCommit": 0_i64,
        "totalCommittedTwoPhaseCommit": 0_i64,
        "currentInSteps": {
            "writingParticipantList": 0_i64,
            "waitingForVotes": 0_i64,
            "writingDecision": 0_i64,
            "waitingForDecisionAcks": 0_i64,
            "deletingCoordinatorDoc": 0_i64,
        },
    );
}
