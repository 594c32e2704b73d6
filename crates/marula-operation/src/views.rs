//! Views: the rules for their definitions, and the limits of operations on them.
//!
//! The views of a database are a graph: a view depends on the collection or view that it is defined
//! on, and on every collection that its pipeline reads (`$lookup`, `$graphLookup`, `$unionWith`,
//! also inside `$facet`). The graph has no cycle, no chain of more than [`DEPTH_MAX`] views, and
//! one collation along every edge.
//!
//! Source: manual "Views"; errors recorded from mongod 6.0.

mod positions;

use std::collections::{HashMap, HashSet};

use marula_bson::{ByteSlice, Doc, DocBuf, Value};
use marula_db::{Collection, Db, Namespace};
use marula_error::{Error, Result, codes, errors};
use marula_query::collation::Collation;
use marula_query::context::Context as QueryContext;
use marula_query::feature_version::FeatureVersion;
use marula_query::stage::pipeline::Pipeline;

/// The maximum length of a chain of views. Source: manual "Views".
pub const DEPTH_MAX: usize = 20;

errors! {
    documents_in_view() = InvalidNamespace, "'$documents' cannot be used in a view definition";
    cycle(path: &str) = GraphContainsCycle, "View cycle detected: {path}";
    graph_too_deep() = ViewDepthLimitExceeded, "View depth limit exceeded; maximum depth is {DEPTH_MAX}";
    too_deep() = ViewDepthLimitExceeded, "View depth too deep or view cycle detected; maximum depth is {DEPTH_MAX}";
    pipeline_too_large() = ViewPipelineMaxSizeExceeded, "View pipeline is too large and exceeds the maximum size of {PIPELINE_BYTES_MAX} bytes";
    not_a_document(place: &str, at: usize, kind: &str) = TypeMismatch, "BSON field '{place}.pipeline.{at}' is the wrong type '{kind}', expected type 'object'";
    writes_to_disk(stage: &str, at: usize, view: &Namespace) = OptionNotSupportedOnView, "The aggregation stage {stage} in location {at} of the pipeline cannot be used in the view definition of {view} because it writes to disk";
    change_stream() = OptionNotSupportedOnView, "$changeStream cannot be used in a view definition";
    conflicting_collation(view: &Namespace, with: &Namespace) = OptionNotSupportedOnView, "View {view} has conflicting collation with view {with}";
    other_collation() = OptionNotSupportedOnView, "Cannot override a view's default collation";
    joins_other_collation(view: &Namespace) = OptionNotSupportedOnView, "Cannot override a view's default collation{view}";
    /// `viewOn` is empty.
    pub on_empty() = BadValue, "'viewOn' cannot be empty";
    on_invalid(on: &str) = InvalidNamespace, "invalid name for 'viewOn': {on}";
}

/// The definition of a view.
pub struct Definition<'a> {
    /// Its name.
    pub view: &'a Namespace,
    /// The collection or view that it is defined on.
    pub on: String,
    /// Its pipeline, an array.
    pub pipeline: Doc<'a>,
    /// Its default collation.
    pub collation: Option<Collation>,
}

/// The maximum size of a view's stages, which have room in a document.
const PIPELINE_BYTES_MAX: usize = 16_000_000;

/// Checks a view's definition. `place` is the name of the command.
///
/// Errors: this module's rows, and those of the pipeline.
pub fn check(db: &Db, place: &str, definition: &Definition<'_>) -> Result<()> {
    let Definition { view, on, pipeline, .. } = definition;
    if on.is_empty() {
        return Err(on_empty());
    }
    if on.contains('$') {
        return Err(on_invalid(on));
    }
    Namespace::new(view.db(), on)?;
    check_stages_are_documents(place, *pipeline)?;
    check_stages(definition, db.feature_version()).map_err(|error| match error.code() {
        // An unknown stage, and one that has not one name, are reported before the view.
        codes::GraphContainsCycle => error,
        code if matches!(code.number(), 40_323 | 40_324) => error,
        _ => error.caused_by(&format!("Invalid pipeline for view {view}")),
    })?;
    let size: usize =
        pipeline.values().filter_map(|it| it.as_doc()).map(|it| it.as_bytes().len()).sum();
    if size > PIPELINE_BYTES_MAX {
        return Err(pipeline_too_large());
    }
    check_graph(db, definition)
}

/// Checks a view's place among the views of its database as they are now.
///
/// Errors: `cycle`, `graph_too_deep`, `conflicting_collation`.
pub fn check_graph(db: &Db, definition: &Definition<'_>) -> Result<()> {
    Graph::new(db, definition).check(definition)
}

/// Checks that each stage of a pipeline is a document. `place` is the name of the command.
pub fn check_stages_are_documents(place: &str, pipeline: Doc<'_>) -> Result<()> {
    let mut stages = pipeline.values().enumerate();
    match stages.find(|(_, stage)| stage.as_doc().is_none() && !stage.is_nullish()) {
        Some((at, stage)) => Err(not_a_document(place, at, stage.kind().alias())),
        None => Ok(()),
    }
}

fn check_stages(definition: &Definition<'_>, version: FeatureVersion) -> Result<()> {
    for (at, stage) in definition.pipeline.values().enumerate() {
        let Some(first) = stage.as_doc().and_then(|stage| stage.iter().next()) else { continue };
        if first.name == "$out" || first.name == "$merge" {
            return Err(writes_to_disk(&first.name.to_string(), at, definition.view));
        }
        if first.name == "$documents" {
            return Err(documents_in_view());
        }
        if first.name == "$changeStream" {
            return Err(change_stream());
        }
    }
    let collation = definition.collation.clone();
    let context = QueryContext { version, collation, ..QueryContext::default() };
    Pipeline::parse_lazily(definition.pipeline, &context).map(|_| ())
}

/// The views of a database, by name, with their dependencies.
struct Graph {
    views: HashMap<String, Node>,
}

struct Node {
    depends_on: Vec<String>,
    collation: Option<DocBuf>,
}

impl Node {
    fn new(on: &str, pipeline: Doc<'_>, collation: Option<&Collation>) -> Self {
        let mut depends_on = vec![on.to_owned()];
        read_collections(pipeline, &mut depends_on);
        Node { depends_on, collation: collation.map(|collation| collation.to_doc().to_buf()) }
    }
}

impl Graph {
    /// Returns the graph with this definition added.
    fn new(db: &Db, definition: &Definition<'_>) -> Self {
        let mut views = HashMap::new();
        for collection in db.catalog().collections(definition.view.db()) {
            let state = collection.state();
            if let Some(view) = &state.options.view {
                let node =
                    Node::new(&view.on, view.pipeline.as_doc(), state.options.collation.as_ref());
                views.insert(collection.namespace().collection().to_owned(), node);
            }
        }
        let Definition { view, on, pipeline, collation } = definition;
        views.insert(view.collection().to_owned(), Node::new(on, *pipeline, collation.as_ref()));
        Graph { views }
    }

    fn check(&self, definition: &Definition<'_>) -> Result<()> {
        let name = definition.view.collection();
        let full = |name: &str| format!("{}.{name}", definition.view.db());
        let mut path = vec![name];
        if self.find_cycle(name, &mut path, &mut HashSet::new()) {
            // As in mongod, the view that closes the cycle is named twice, and the path goes back.
            path.push(name);
            let path: Vec<String> = path.into_iter().rev().map(full).collect();
            return Err(cycle(&path.join(" => ")));
        }
        let below = self.height(name, &mut HashMap::new(), &|name| {
            self.views.get(name).map(|node| node.depends_on.iter().map(String::as_str).collect())
        });
        let above = self.height(name, &mut HashMap::new(), &|name| {
            let parents =
                self.views.iter().filter(|(_, node)| node.depends_on.iter().any(|on| on == name));
            Some(parents.map(|(parent, _)| parent.as_str()).collect())
        });
        if below + above - 1 > DEPTH_MAX {
            return Err(graph_too_deep());
        }
        self.check_collations(definition)
    }

    /// Follows the dependencies of `at` until they reach the view itself; `path` is the way there.
    /// Each view of `seen` was followed before, so that the work is bounded by the graph and not by
    /// the number of paths through it.
    fn find_cycle<'g>(
        &'g self,
        at: &str,
        path: &mut Vec<&'g str>,
        seen: &mut HashSet<&'g str>,
    ) -> bool {
        let Some(node) = self.views.get(at) else { return false };
        for next in &node.depends_on {
            // Only the new definition can close a cycle.
            if next == path[0] {
                path.push(next);
                return true;
            }
            // No chain of views is longer than this.
            if path.len() > DEPTH_MAX || !seen.insert(next) {
                continue;
            }
            path.push(next);
            if self.find_cycle(next, path, seen) {
                return true;
            }
            path.pop();
        }
        false
    }

    /// Returns the number of views on the longest chain from `name`, itself included, in the
    /// direction of `next`.
    fn height<'g>(
        &'g self,
        name: &'g str,
        known: &mut HashMap<&'g str, usize>,
        next: &dyn Fn(&str) -> Option<Vec<&'g str>>,
    ) -> usize {
        if !self.views.contains_key(name) {
            return 0;
        }
        if let Some(height) = known.get(name) {
            return *height;
        }
        // A view on the current path counts as zero, so that the recursion ends for every graph.
        known.insert(name, 0);
        let further = next(name).unwrap_or_default();
        let longest = further.into_iter().map(|other| self.height(other, known, next)).max();
        let height = 1 + longest.unwrap_or(0);
        known.insert(name, height);
        height
    }

    fn check_collations(&self, definition: &Definition<'_>) -> Result<()> {
        let name = definition.view.collection();
        let this = &self.views[name];
        for (other, node) in &self.views {
            let is_edge =
                this.depends_on.contains(other) || node.depends_on.iter().any(|on| on == name);
            if is_edge && node.collation != this.collation {
                return Err(conflicting_collation(
                    definition.view,
                    &Namespace::new(definition.view.db(), other)?,
                ));
            }
        }
        Ok(())
    }
}

/// Checks the views that a pipeline joins or writes to before it runs, time-series collections
/// among them: each has the operation's collation.
///
/// Errors: `joins_other_collation`, those of the pipeline itself.
pub fn check_joined(
    db: &Db,
    database: &str,
    pipeline: Doc<'_>,
    context: &QueryContext,
) -> Result<()> {
    let mut names = Vec::new();
    read_collections(pipeline, &mut names);
    names.extend(written_collection(pipeline));
    let doc =
        |collation: Option<&Collation>| collation.map(|collation| collation.to_doc().to_buf());
    for name in names {
        let Ok(ns) = Namespace::new(database, &name) else { continue };
        let Some(collection) = db.collection(&ns) else { continue };
        let state = collection.state();
        let is_view = state.options.view.is_some();
        if is_view && doc(state.options.collation.as_ref()) != doc(context.collation.as_ref()) {
            // Errors of the pipeline itself are reported first, except for those of its constants.
            Pipeline::parse_lazily(pipeline, context)?;
            return Err(joins_other_collation(&ns));
        }
    }
    Ok(())
}

/// Computes the constants of the views that a pipeline's `$unionWith`s read, as mongod does before
/// it reads any document.
///
/// Errors: those of the views' constant expressions.
pub fn check_unions(
    db: &Db,
    database: &str,
    pipeline: Doc<'_>,
    context: &QueryContext,
) -> Result<()> {
    let stages = pipeline.values().filter_map(|stage| stage.as_doc());
    for spec in stages.filter_map(|stage| stage.get("$unionWith")) {
        let name = spec.as_doc().map_or(Some(spec), |spec| spec.get("coll"));
        let Some(name) = name.and_then(|name| name.as_str()) else { continue };
        let Ok(ns) = Namespace::new(database, &name.to_string()) else { continue };
        resolve(db, ns)?.check_constants(context)?;
    }
    Ok(())
}

/// Checks the pipeline that the views under `ns` make of one on it: the positions of its stages,
/// and then the views' constants.
///
/// Errors: those of stages that must be the first, those of the constant expressions.
pub fn check_resolved(
    db: &Db,
    ns: &Namespace,
    pipeline: Doc<'_>,
    context: &QueryContext,
) -> Result<()> {
    let resolved = resolve(db, ns.clone())?;
    positions::check(db, &resolved, pipeline, context.version)?;
    resolved.check_constants(context)
}

/// Adds the collections of the same database that a pipeline reads.
pub fn read_collections(pipeline: Doc<'_>, out: &mut Vec<String>) {
    for (name, stages) in joined(pipeline) {
        out.push(name);
        read_collections(stages, out);
    }
}

/// Returns the collections of the same database that the stages of a pipeline join, each with the
/// stages on it; those in a `$facet`, too.
fn joined(pipeline: Doc<'_>) -> Vec<(String, Doc<'_>)> {
    let mut out = Vec::new();
    let stages = pipeline.values().filter_map(|stage| stage.as_doc());
    for element in stages.filter_map(|stage| stage.iter().next()) {
        let value = element.value.get();
        let spec = value.as_doc().unwrap_or(Doc::EMPTY);
        let name = match element.name.as_bytes() {
            b"$lookup" | b"$graphLookup" => spec.get("from"),
            b"$unionWith" => Some(value).filter(|it| it.as_str().is_some()).or(spec.get("coll")),
            b"$facet" => {
                spec.values().filter_map(|it| it.as_array()).for_each(|it| out.extend(joined(it)));
                continue;
            }
            _ => continue,
        };
        if let Some(name) = name.and_then(|name| name.as_str()) {
            let stages = spec.get("pipeline").and_then(|stages| stages.as_array());
            out.push((name.to_string(), stages.unwrap_or(Doc::EMPTY)));
        }
    }
    out
}

/// Returns the collection that a pipeline writes, if it names no database.
fn written_collection(pipeline: Doc<'_>) -> Option<String> {
    let stage = pipeline.values().last()?.as_doc()?.iter().next()?;
    let target = match (stage.name.as_bytes(), stage.value.get()) {
        (b"$out", target) => target,
        (b"$merge", Value::Document(merge)) => merge.get("into")?,
        (b"$merge", target) => target,
        _ => return None,
    };
    target.as_str().map(|name| name.to_string())
}

/// Checks that the chain of views under `ns` is not longer than permitted.
pub fn check_depth(db: &Db, ns: &Namespace) -> Result<()> {
    let mut at = ns.clone();
    for _ in 0..DEPTH_MAX {
        let Some(collection) = db.collection(&at) else { return Ok(()) };
        match &collection.state().options.view {
            Some(view) => at = Namespace::new(at.db(), &view.on)?,
            None => return Ok(()),
        }
    }
    Err(too_deep())
}

/// Checks that an operation on a view does not name another collation than the view's.
///
/// Errors: `other_collation`, those of the collation.
pub fn check_collation(
    collection: Option<&Collection>,
    asked: Option<Value<'_>>,
) -> Result<(), Error> {
    let Some(collection) = collection else { return Ok(()) };
    let state = collection.state();
    let (Some(_), Some(Value::Document(asked))) = (&state.options.view, asked) else {
        return Ok(());
    };
    if state.options.time_series.is_some() || asked.is_empty() {
        return Ok(());
    }
    let doc =
        |collation: Option<&Collation>| collation.map(|collation| collation.to_doc().to_buf());
    let asked = Collation::parse(asked, "collation")?;
    match doc(asked.as_ref()) == doc(state.options.collation.as_ref()) {
        true => Ok(()),
        false => Err(other_collation()),
    }
}

/// A namespace as the collection that the views on it read.
pub struct Resolved {
    /// The collection.
    pub ns: Namespace,
    /// The pipelines of the views, the lowest first.
    pub pipelines: Vec<DocBuf>,
    /// Whether the lowest pipeline makes the measurements of a time-series collection of its
    /// buckets.
    pub(crate) unpacks: bool,
}

impl Resolved {
    /// Computes the constants of the views, the lowest first.
    ///
    /// Errors: those of the constant expressions.
    fn check_constants(&self, context: &QueryContext) -> Result<()> {
        let check = |stages: &DocBuf| Pipeline::parse(stages.as_doc(), context).map(drop);
        self.pipelines.iter().try_for_each(check)
    }
}

/// Resolves the views of `ns`.
///
/// Errors: a chain of views that is too long.
pub fn below(db: &Db, ns: Namespace) -> Result<Resolved> {
    check_depth(db, &ns)?;
    resolve(db, ns)
}

/// Resolves the views of `ns`, of a chain that is too long as many as permitted.
///
/// Errors: a view on a name that is invalid.
pub fn resolve(db: &Db, mut ns: Namespace) -> Result<Resolved> {
    let (mut pipelines, mut unpacks) = (Vec::new(), false);
    while pipelines.len() < DEPTH_MAX
        && let Some(collection) = db.collection(&ns)
    {
        let state = collection.state();
        let Some(view) = &state.options.view else { break };
        pipelines.push(view.pipeline.clone());
        unpacks = state.options.time_series.is_some();
        ns = Namespace::new(ns.db(), &view.on)?;
    }
    pipelines.reverse();
    Ok(Resolved { ns, pipelines, unpacks })
}
