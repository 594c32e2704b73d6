//! The environment of operations: the implementation of [`Host`], and the namespaces that queries
//! may name.

use marula_bson::{DocBuf, Value, ValueBuf, doc_fields};
use marula_db::Namespace;
use marula_error::{Result, errors};
use marula_operation::{Arguments, Env, Host};
use marula_plan::TimeBudget;
use marula_query::context::{Context as QueryContext, Interrupt as QueryInterrupt};
use marula_query::feature_version::FeatureVersion;
use marula_query::spill::Limits;

use crate::context::{Context, Watch};
use crate::net::service::CallThread;
use crate::request::Request;

errors! {
    invalid_collection_name(ns: &str) = InvalidNamespace, "Invalid collection name specified '{ns}";
}

/// Returns the collection that a query names; rejects names of collections without documents.
pub(crate) fn readable_namespace(request: &Request<'_>) -> Result<Namespace> {
    let ns = request.namespace()?;
    match ns.collection().contains('$') && ns.as_str() != "local.oplog.$main" {
        true => Err(invalid_collection_name(ns.as_str())),
        false => Ok(ns),
    }
}

impl<'a> Arguments<'a> for Request<'a> {
    fn arg(&self, name: &str) -> Option<Value<'a>> {
        Request::arg(self, name)
    }

    fn given(&self, name: &str) -> Option<Value<'a>> {
        Request::given(self, name)
    }
}

impl Context<'_> {
    /// The environment of an operation that this command runs.
    pub fn env(&self) -> Env<'_> {
        Env { unit: self.unit, host: self }
    }

    /// Returns whether this thread may wait for others and may take its time.
    pub fn may_wait(&self) -> bool {
        self.call.thread == CallThread::Pool
    }
}

impl Host for Context<'_> {
    fn check_interrupt(&self) -> Result<()> {
        Context::check_interrupt(self)
    }

    /// An operation that may have to be profiled is not attempted within a time budget: a profile
    /// of the attempt would be lost.
    fn time_budget(&self) -> TimeBudget {
        let time = self.call.time_budget;
        if self.may_wait() {
            TimeBudget::Timed
        } else if self.server.profiling.concerns(TimeBudget::longest(time)) {
            TimeBudget::Short
        } else {
            TimeBudget::UpTo(time)
        }
    }

    fn language(&self) -> QueryContext {
        QueryContext {
            version: self.server.db.feature_version(),
            collation: None,
            now_ms: self.now_ms,
            cluster_time: cluster_time(self),
            let_variables: None,
            user_roles: user_roles(self),
            missing_variables: Vec::new(),
            unknown_variables: Vec::new(),
            interrupt: Some(QueryInterrupt::new(Watch::new(self))),
            limits: Limits::default(),
            has_text_score: false,
            text_search_error: None,
            has_distance: false,
            assumes_metadata: false,
            keeps_calls: false,
            is_stored: false,
            counts_uses: false,
            subject: None,
        }
    }

    fn limits(&self, may_use_disk: Option<bool>) -> Limits {
        let parameters = &self.server.parameters;
        let bytes = |name: &str| usize::try_from(parameters.number(name)).unwrap_or(usize::MAX);
        let may_use_disk = may_use_disk.unwrap_or_else(|| parameters.flag("allowDiskUseByDefault"));
        Limits {
            sort_bytes_max: bytes("internalQueryMaxBlockingSortMemoryUsageBytes"),
            group_bytes_max: bytes("internalDocumentSourceGroupMaxMemoryBytes"),
            window_bytes_max: bytes("internalDocumentSourceSetWindowFieldsMaxMemoryBytes"),
            push_bytes_max: bytes("internalQueryMaxPushBytes"),
            add_to_set_bytes_max: bytes("internalQueryMaxAddToSetBytes"),
            list_bytes_max: bytes("internalQueryTopNAccumulatorBytes"),
            facet_bytes_max: bytes("internalQueryFacetMaxOutputDocSizeBytes"),
            densify_bytes_max: bytes("internalDocumentSourceDensifyMaxMemoryBytes"),
            densify_documents_max: u64::try_from(
                parameters.number("internalQueryMaxAllowedDensifyDocs"),
            )
            .unwrap_or(u64::MAX),
            lookup_bytes_max: bytes("internalLookupStageIntermediateDocumentMaxSizeBytes"),
            disk: may_use_disk.then(|| self.server.disk.clone()),
        }
    }
}

/// The limits of an operation whose request may have the field `allowDiskUse`.
pub(crate) fn limits(ctx: &Context<'_>, request: &Request<'_>) -> Limits {
    ctx.limits(request.arg("allowDiskUse").map(|flag| flag.is_truthy()))
}

/// Returns the roles of the user, and those that they inherit from, if the language has a variable
/// for them.
fn user_roles(ctx: &Context<'_>) -> Option<ValueBuf> {
    let access = ctx.connection.access.as_deref()?;
    if ctx.server.db.feature_version() < FeatureVersion::V7_0 {
        return None;
    }
    let roles = DocBuf::build(|out| {
        let mut list = out.begin_array("roles");
        for role in &access.roles {
            let mut one = list.begin_doc();
            doc_fields!(one; "_id": role.id().as_str(), "role": role.name.as_str(), "db": role.db.as_str());
        }
    });
    roles.as_doc().get("roles").map(|roles| roles.to_buf())
}

/// Returns `$$CLUSTER_TIME`, which a member of a replica set has.
fn cluster_time(ctx: &Context<'_>) -> Option<u64> {
    let server = ctx.server;
    server.options.repl_set.as_ref().map(|_| server.db.newest_timestamp(ctx.now_ms))
}
