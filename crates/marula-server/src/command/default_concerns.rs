//! `getDefaultRWConcern` and `setDefaultRWConcern`: the read and write concern of operations that
//! specify none.
//!
//! Source: manual "setDefaultRWConcern"; errors recorded from mongod 6.0.

use marula_bson::{Doc, DocBuf, DocWriter};
use marula_error::{Result, errors};

use super::fields::{Field, Types};
use super::{Auth, Command, CommandPlace, Fields, OnSecondary, Outcome};
use crate::concern::{ReadConcern, ReadLevel, W, WriteConcern};
use crate::context::Context;
use crate::request::Request;

errors! {
    standalone(name: &str) = 51_300, "'{name}' is not supported on standalone nodes.";
    nothing_given() = BadValue, "At least one of the \"defaultReadConcern\" or \"defaultWriteConcern\" fields must be present";
    unsuitable_level(level: &str) = BadValue, "level: '{level}' is not suitable for the default read concern";
    unsuitable_time(field: &str) = BadValue, "'{field}' is not suitable for the default read concern";
    unacknowledged() = BadValue, "Unacknowledged write concern is not suitable for the default write concern";
    no_w() = BadValue, "Default write concern must have 'w' field.";
    write_stays() = IllegalOperation, "The global default write concern cannot be unset once it is set.";
}

const BASE: Command = Command { admin_only: true, ..Command::DEFAULT };

pub(super) static GET: Command = Command {
    name: "getDefaultRWConcern",
    help: "Returns the read and write concern of operations that specify none.",
    place: CommandPlace::Inline,
    fields: Fields::Strict {
        place: "getDefaultRWConcern",
        fields: &[Field::optional("inMemory", Types::BOOLEAN)],
    },
    run: get,
    auth: Auth::Cluster(&["getDefaultRWConcern"]),
    ..BASE
};

pub(super) static SET: Command = Command {
    name: "setDefaultRWConcern",
    help: "Changes the read and write concern of operations that specify none.",
    secondary: Some(OnSecondary::Never),
    fields: Fields::Strict {
        place: "setDefaultRWConcern",
        fields: &[
            Field::optional("defaultReadConcern", Types::DOCUMENT),
            Field::optional("defaultWriteConcern", Types::DOCUMENT),
        ],
    },
    takes_write_concern: true,
    run: set,
    auth: Auth::Cluster(&["setDefaultRWConcern"]),
    ..BASE
};

fn get(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    if ctx.server.options.repl_set.is_none() {
        return Err(standalone(request.command.name));
    }
    ctx.server.default_concerns.append(request.flag("inMemory"), reply);
    Ok(Outcome::Done)
}

fn set(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let server = ctx.server;
    if server.options.repl_set.is_none() {
        return Err(standalone(request.command.name));
    }
    let doc = |name: &str| request.arg(name).and_then(|concern| concern.as_doc());
    let (read, write) = (doc("defaultReadConcern"), doc("defaultWriteConcern"));
    if read.is_none() && write.is_none() {
        return Err(nothing_given());
    }
    if let Some(read) = read {
        check_read(read)?;
    }
    let write = match write {
        Some(write) if write.is_empty() && server.default_concerns.write().is_some() => {
            return Err(write_stays());
        }
        Some(write) if !write.is_empty() => Some(checked_write(write)?),
        write => write.map(|write| write.to_buf()),
    };
    let write = write.as_ref().map(DocBuf::as_doc);
    server.default_concerns.set(&server.db, read, write, ctx.now_ms)?;
    server.default_concerns.append(false, reply);
    Ok(Outcome::Done)
}

fn check_read(read: Doc<'_>) -> Result<()> {
    let concern = ReadConcern::parse(read.into())?;
    match concern.level {
        Some(ReadLevel::Snapshot) => Err(unsuitable_level("snapshot")),
        Some(ReadLevel::Linearizable) => Err(unsuitable_level("linearizable")),
        _ if concern.after_cluster_time.is_some() => Err(unsuitable_time("afterClusterTime")),
        _ => Ok(()),
    }
}

/// Returns the write concern in its stored form.
///
/// Errors: `no_w`, `unacknowledged`, and a mode that is not configured.
fn checked_write(write: Doc<'_>) -> Result<DocBuf> {
    let concern = WriteConcern::parse(write.into())?;
    let Some(w) = write.get("w") else { return Err(no_w()) };
    if matches!(concern.w, W::Nodes(0)) {
        return Err(unacknowledged());
    }
    // A number of nodes above that of the set is valid, because nodes may be added; a mode that is
    // not configured is an error.
    if let (W::Mode(_) | W::Tags(_), Some(error)) = (&concern.w, concern.unsatisfied()) {
        return Err(error);
    }
    Ok(DocBuf::build(|out| {
        out.append("w", w);
        if let Some(j) = write.get("j") {
            out.append("j", j);
        }
        out.append("wtimeout", concern.wtimeout_ms);
    }))
}
