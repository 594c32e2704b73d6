//! What the executions of one operation have looked at, summed up where they run.
//!
//! An operation runs on one thread from its call to its answer, and may run many executions: those of a pipeline's
//! sources, of the statements of a write. Each adds to the *tally* of its thread what it has looked at, and the frame
//! around commands takes it at the end. So nothing is handed through every command for the sake of counters, the log
//! of slow operations and the profiler.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use marula_bson::{Doc, DocBuf, Value};

use crate::executor::{Examined, Execution};
use crate::explain::{self, Printed};
use crate::plan::{Plan, Stage};
use crate::shape::Shape;

/// How much of its plan an operation tells.
pub enum Detail {
    /// Nothing.
    Nothing,
    /// The plan in a line.
    Summary,
    /// What each stage has done, too.
    Stages {
        /// The sort, as it was given.
        sort: DocBuf,
        /// The projection, as it was given.
        projection: DocBuf,
    },
}

impl Detail {
    /// What each stage has done, for a command with these fields.
    pub fn stages<'d>(field: impl Fn(&str) -> Option<Value<'d>>) -> Detail {
        let document = |name: &str| {
            let document = field(name).and_then(|value| value.as_doc());
            document.map_or_else(DocBuf::new, Doc::to_buf)
        };
        Detail::Stages { sort: document("sort"), projection: document("projection") }
    }
}

/// Who is told of the first plan that an operation runs, as it begins.
pub trait Listener: Send + Sync {
    /// The plan in a line: `IXSCAN { a: 1 }`.
    fn plan_begins(&self, summary: String);
}

/// What is told of the first plan that an operation ran.
pub struct Told {
    /// The plan in a line: `IXSCAN { a: 1 }`.
    pub summary: String,
    /// Whether it sorts.
    pub has_sort: bool,
    /// Whether it looks a document up by its `_id`.
    pub is_by_id: bool,
    /// Whether it has won against others that were tried.
    pub has_won: bool,
    /// The shape of the query, where it was planned.
    pub shape: Option<Shape>,
    /// Whether the plan may be remembered for that shape.
    pub may_be_remembered: bool,
    /// Its stages and what they have done so far.
    pub stages: Option<DocBuf>,
}

thread_local! {
    static EXAMINED: Cell<Examined> = const { Cell::new(Examined { keys: 0, docs: 0 }) };
    static TELLS: Cell<bool> = const { Cell::new(false) };
    static DETAIL: RefCell<Detail> = const { RefCell::new(Detail::Nothing) };
    static LISTENER: RefCell<Option<Arc<dyn Listener>>> = const { RefCell::new(None) };
    static TOLD: RefCell<Option<Told>> = const { RefCell::new(None) };
}

/// Has the first plan of this thread's operation announced to `listener`. Comes behind [`start`].
pub fn announce_to(listener: Arc<dyn Listener>) {
    LISTENER.set(Some(listener));
}

/// Starts the tally of an operation on this thread, or of one statement of it.
#[inline]
pub fn start(detail: Detail) {
    EXAMINED.set(Examined::default());
    let tells = !matches!(detail, Detail::Nothing);
    if tells || TELLS.get() {
        TELLS.set(tells);
        DETAIL.set(detail);
        LISTENER.set(None);
        TOLD.set(None);
    }
}

/// Changes how much is told of the first plan, which has not run yet.
pub fn set_detail(detail: Detail) {
    DETAIL.set(detail);
}

/// What was looked at since the start.
#[inline]
pub fn examined() -> Examined {
    EXAMINED.get()
}

/// What is told of the plan, once.
pub fn take_told() -> Option<Told> {
    TOLD.take()
}

/// Notes that a plan begins to run, or goes on.
#[inline]
pub(crate) fn begin(plan: &Plan) {
    if TELLS.get() {
        announce(plan);
    }
}

#[cold]
fn announce(plan: &Plan) {
    if let Some(listener) = LISTENER.take() {
        listener.plan_begins(plan.summary());
    }
}

/// Adds what a run has looked at.
#[inline]
pub(crate) fn add(execution: &Execution, run: Examined) {
    let sum = EXAMINED.get();
    EXAMINED.set(Examined { keys: sum.keys + run.keys, docs: sum.docs + run.docs });
    if TELLS.get() {
        tell(execution);
    }
}

#[cold]
fn tell(execution: &Execution) {
    if TOLD.with_borrow(Option::is_some) {
        return;
    }
    let (plan, query) = (execution.plan(), execution.query());
    let has_sort = plan.root.any(&|stage| matches!(stage, Stage::Sort(_)));
    let is_by_id = plan.root.any(&|stage| matches!(stage, Stage::IdHack(_)));
    // The first of each group is planned for beforehand, by the indexes alone.
    let is_planned = !plan.gives_first_of_each();
    let stages = DETAIL.with_borrow(|detail| match detail {
        Detail::Stages { sort, projection } => {
            let (sort, projection): (Doc<'_>, Doc<'_>) = (sort.as_doc(), projection.as_doc());
            Some(explain::tree(
                plan,
                &Printed { sort, projection, has_run: true, sorts_records: false },
            ))
        }
        Detail::Nothing | Detail::Summary => None,
    });
    TOLD.set(Some(Told {
        summary: plan.summary(),
        has_sort,
        is_by_id,
        has_won: plan.has_won,
        shape: is_planned.then(|| Shape::of(query, &execution.collection().state())),
        may_be_remembered: is_planned && !is_by_id && query.has_choice(),
        stages,
    }));
}
