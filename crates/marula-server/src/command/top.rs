//! `top`: the number and the duration of the uses of each collection since the start of the server,
//! by kind of use.

use marula_bson::{DocWriter, Value};
use marula_db::usage::Use;
use marula_error::Result;

use super::{Auth, Command, Outcome};
use crate::context::Context;
use crate::request::Request;

pub(super) static COMMAND: Command = Command {
    name: "top",
    help: "Returns the number and the total duration of the uses of each collection, by kind of use.",
    admin_only: true,
    auth: Auth::Cluster(&["top"]),
    run,
    ..Command::DEFAULT
};

const READS: &[Use] = &[Use::Query, Use::GetMore, Use::ReadCommand];
const WRITES: &[Use] = &[Use::Insert, Use::Update, Use::Remove, Use::WriteCommand];

/// The shown fields of a collection, each with the kinds of use that it adds up.
const SHOWN: &[(&str, &[&[Use]])] = &[
    ("total", &[READS, WRITES]),
    ("readLock", &[READS]),
    ("writeLock", &[WRITES]),
    ("queries", &[&[Use::Query]]),
    ("getmore", &[&[Use::GetMore]]),
    ("insert", &[&[Use::Insert]]),
    ("update", &[&[Use::Update]]),
    ("remove", &[&[Use::Remove]]),
    ("commands", &[&[Use::ReadCommand, Use::WriteCommand]]),
];

fn run(ctx: &mut Context<'_>, _: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let mut totals = reply.begin_doc("totals");
    totals.append("note", "all times in microseconds");
    let catalog = ctx.server.db.catalog();
    let databases = catalog.databases();
    let mut used: Vec<_> =
        databases.iter().flat_map(|database| catalog.collections(database)).collect();
    used.retain(|collection| SHOWN[0].1.iter().any(|uses| collection.usage().sum(uses).0 > 0));
    used.sort_by_cached_key(|collection| collection.namespace().as_str().to_owned());
    for collection in used {
        let mut shown = totals.begin_doc(collection.namespace().as_str());
        for (name, uses) in SHOWN {
            let sums = uses.iter().map(|uses| collection.usage().sum(uses));
            let (count, us) = sums.fold((0_u64, 0_u64), |sum, one| {
                (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1))
            });
            let mut part = shown.begin_doc(*name);
            part.append("time", whole(us)).append("count", whole(count));
        }
    }
    Ok(Outcome::Done)
}

fn whole(number: u64) -> Value<'static> {
    Value::whole(number)
}
