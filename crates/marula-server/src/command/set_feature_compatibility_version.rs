//! `setFeatureCompatibilityVersion`: selects the release whose language is enabled, from 6.0 to
//! 8.0.
//!
//! The version is stored, and applies to every command that is parsed after the change. Versions
//! older than 6.0 are rejected: their behaviour is not implemented.
//! Source: manual "setFeatureCompatibilityVersion", of 6.0 for the errors and of 7.0 for `confirm`;
//! errors recorded from mongod 6.0.

use marula_bson::{DocWriter, Type, Value};
use marula_error::{Result, errors};
use marula_query::feature_version::FeatureVersion;

use super::fields::{self, Field, Types};
use super::{Auth, Command, Fields, OnSecondary, Outcome};
use crate::auth::args;
use crate::context::Context;
use crate::request::Request;

/// The command's name in error messages.
const PLACE: &str = "setFeatureCompatibilityVersion";

errors! {
    bad_version() = 4_926_900, "Invalid feature compatibility version value, expected '5.0' or '5.3' or '6.0. See https://docs.mongodb.com/master/release-notes/5.0-compatibility/#feature-compatibility.";
    version_type(kind: &str) = TypeMismatch, "BSON field 'setFeatureCompatibilityVersion.setFeatureCompatibilityVersion' is the wrong type '{kind}', expected type 'string'";
    too_old(version: &str) = CommandNotSupported, "this server behaves as version 6.0, 7.0 or 8.0, not as {version}";
    disk_changes(version: &str) = IllegalOperation, "Cannot set featureCompatibilityVersion to {version} with 'downgradeOnDiskChanges' set to true. This is only allowed when downgrading to 5.3";
    bad_phase(phase: &str) = BadValue, "Enumeration value '{phase}' for field 'setFeatureCompatibilityVersion.phase' is not a valid value.";
    /// Required since 7.0.
    unconfirmed_upgrade(version: &str) = 7_369_100, "Once you have upgraded to {version}, you will not be able to downgrade FCV and binary version without support assistance. Please re-run this command with 'confirm: true' to acknowledge this and continue with the FCV upgrade.";
    /// Required since 7.0.
    unconfirmed_downgrade() = 7_369_100, "Once you have downgraded the FCV, if you choose to downgrade the binary version, it will require support assistance. Please re-run this command with 'confirm: true' to acknowledge this and continue with the FCV downgrade.";
}

pub(super) static COMMAND: Command = Command {
    name: "setFeatureCompatibilityVersion",
    help: "Selects the release whose language the server offers: 6.0, 7.0 or 8.0.",
    admin_only: true,
    takes_write_concern: true,
    secondary: Some(OnSecondary::Never),
    fields: Fields::Strict {
        place: PLACE,
        fields: &[
            Field::optional("downgradeOnDiskChanges", Types::FLAG),
            Field::optional("fromConfigServer", Types::FLAG),
            Field::optional("phase", Types::STRING),
            Field::optional("changeTimestamp", Types::One(Type::Timestamp)),
            // 6.0 does not have this field, but an upgrade from 6.0 requires it.
            Field::optional("confirm", Types::FLAG),
        ],
    },
    auth: Auth::Cluster(&["setFeatureCompatibilityVersion"]),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, _: &mut DocWriter<'_>) -> Result<Outcome> {
    let name = match request.first.value.get() {
        Value::String(name) if name.contains(&0) => return Err(args::embedded_nul()),
        Value::String(name) => name.to_string(),
        Value::Null | Value::Undefined => return Err(fields::missing_field(PLACE, PLACE)),
        other => return Err(version_type(other.kind().alias())),
    };
    if let Some(phase) = request.text("phase")
        && !["start", "prepare", "complete"].iter().any(|known| phase == *known)
    {
        return Err(bad_phase(&phase.to_string()));
    }
    let Some(version) = FeatureVersion::from_name(name.as_bytes()) else {
        return Err(if ["5.0", "5.3"].contains(&&*name) { too_old(&name) } else { bad_version() });
    };
    if request.flag("downgradeOnDiskChanges") {
        return Err(disk_changes(&name));
    }
    let current = ctx.server.db.feature_version();
    if version != current && !request.flag("confirm") {
        return Err(match version > current {
            true => unconfirmed_upgrade(&name),
            false => unconfirmed_downgrade(),
        });
    }
    ctx.server.db.set_feature_version(version, ctx.now_ms)?;
    if version != current {
        let (from, to) = (current.name(), version.name());
        tracing::info!(target: "REPL", id = 20_459, currentVersion = from, newVersion = to, "Setting featureCompatibilityVersion");
    }
    Ok(Outcome::Done)
}
