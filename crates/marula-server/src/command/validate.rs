//! `validate`: checks a collection's documents, indexes and counters.

use std::sync::Arc;

use marula_bson::{DocWriter, Value};
use marula_db::validate::{self, Report};
use marula_db::{Collection, Namespace};
use marula_error::{Result, errors};

use super::{Auth, Command, Named, OnSecondary, Outcome};
use crate::context::Context;
use crate::request::Request;
use crate::time_series;

errors! {
    no_collection(ns: &Namespace) = NamespaceNotFound, "Collection '{ns}' does not exist to validate.";
    view() = CommandNotSupportedOnView, "Cannot validate a view";
    not_together(first: &str, second: &str) = InvalidOptions, "Running the validate command with both {{ {first}: true }} and {{ {second}: true }} is not supported.";
    not_with_metadata() = InvalidOptions, "Running the validate command with {{ metadata: true }} is not supported with any other options";
    repair_in_set() = InvalidOptions, "Running the validate command with {{ repair: true }} can only be performed in standalone mode.";
}

/// The options that exclude each other, in the order of the errors.
const APART: &[[&str; 2]] = &[
    ["background", "full"],
    ["background", "enforceFastCount"],
    ["background", "repair"],
    ["enforceFastCount", "repair"],
];

/// The warning in the reply if documents do not satisfy the collection's validator.
const NON_COMPLIANT: &str = "Detected one or more documents not compliant with the collection's schema. Check logs for log id 5363500.";

/// The advice in the reply if the collection is not valid.
const ADVICE: &str = "A corrupt namespace has been detected. See http://dochub.mongodb.org/core/data-recovery for recovery steps.";

pub(super) static COMMAND: Command = Command {
    name: "validate",
    takes_after_cluster_time: false,
    help: "Checks that all documents are valid BSON, that each index has exactly the entries of the documents, and that the counters are correct.",
    ends_with_client: true,
    named: Named::OLD_BY_NAME,
    auth: Auth::Collection(&["validate"]),
    secondary: Some(OnSecondary::IfPreferred),
    run,
    ..Command::DEFAULT
};

fn run(
    context: &mut Context<'_>,
    request: &Request<'_>,
    reply: &mut DocWriter<'_>,
) -> Result<Outcome> {
    let ns = request.namespace()?;
    let ns = time_series::data_namespace(&context.server.db, &ns)?;
    let both = |[first, second]: &&[&str; 2]| request.flag(first) && request.flag(second);
    if let Some([first, second]) = APART.iter().find(both) {
        return Err(not_together(first, second));
    }
    if request.flag("repair") && context.server.options.repl_set.is_some() {
        return Err(repair_in_set());
    }
    let others = ["full", "repair", "background", "enforceFastCount"];
    if request.flag("metadata") && others.into_iter().any(|option| request.flag(option)) {
        return Err(not_with_metadata());
    }
    let collection = find(context, &ns)?;
    let flag = |name| request.flag(name);
    tracing::info!(target: "COMMAND", id = 20_514, namespace = %ns, background = flag("background"), full = flag("full"), repair = flag("repair"), "CMD: validate");
    let report = check(context, &ns, collection)?;
    let number = |number: i64| i32::try_from(number).unwrap_or(i32::MAX);
    reply.append("ns", ns.as_str());
    if !request.flag("metadata") {
        // Each count is an int, or a long if an int is too small.
        reply.append("nInvalidDocuments", Value::whole(report.invalid_documents));
        reply.append("nNonCompliantDocuments", Value::whole(report.non_compliant_documents));
        reply.append("nrecords", Value::whole(report.records));
        reply.append("nIndexes", number(i64::try_from(report.keys_per_index.len()).unwrap_or(0)));
        let mut keys = reply.begin_doc("keysPerIndex");
        for (name, count) in &report.keys_per_index {
            keys.append(name, Value::whole(*count));
        }
        drop(keys);
        let mut details = reply.begin_doc("indexDetails");
        for (name, _) in &report.keys_per_index {
            let start = format!("index '{name}'");
            let is_valid = !report.errors.iter().any(|error| error.starts_with(&start));
            details.begin_doc(name).append("valid", is_valid);
        }
    }
    reply.append("valid", report.is_valid());
    match report.is_valid() {
        true => {
            tracing::info!(target: "INDEX", id = 20_306, namespace = %ns, "Validation complete for collection. No corruption found");
        }
        false => {
            tracing::error!(target: "INDEX", id = 20_307, namespace = %ns, "Validation complete for collection. Corruption found");
        }
    }
    reply.append("repaired", false);
    let mut warnings = reply.begin_array("warnings");
    if report.non_compliant_documents > 0 && !request.flag("metadata") {
        tracing::warn!(target: "STORAGE", id = 5_363_500, namespace = %ns, documents = report.non_compliant_documents, "Document is not compliant with the collection's schema");
        warnings.push(NON_COMPLIANT);
    }
    drop(warnings);
    let mut errors = reply.begin_array("errors");
    for error in &report.errors {
        errors.push(error.as_str());
    }
    drop(errors);
    for name in ["extraIndexEntries", "missingIndexEntries"] {
        reply.begin_array(name).finish();
    }
    let mut records = reply.begin_array("corruptRecords");
    for record in &report.corrupt_records {
        records.push(*record);
    }
    drop(records);
    if !report.is_valid() {
        reply.append("advice", ADVICE);
    }
    Ok(Outcome::Done)
}

/// Looks up the collection.
fn find(context: &Context<'_>, ns: &Namespace) -> Result<Arc<Collection>> {
    let collection = context.server.db.collection(ns).ok_or_else(|| no_collection(ns))?;
    if collection.state().options.view.is_some() { Err(view()) } else { Ok(collection) }
}

/// Checks the collection of this name: the next one if `collection` is dropped before its check
/// begins.
fn check(context: &Context<'_>, ns: &Namespace, mut collection: Arc<Collection>) -> Result<Report> {
    loop {
        let mut go_on = || context.check_interrupt();
        match validate::check(&context.server.db, &collection, &mut go_on) {
            Err(_) if collection.is_dropped() => {
                context.check_interrupt()?;
                collection = find(context, ns)?;
            }
            outcome => return outcome,
        }
    }
}
