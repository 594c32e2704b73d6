//! JavaScript: `$where`, `$function`, `$accumulator`, `mapReduce`.
//!
//! ```text
//!   thread ── Engine (QuickJS runtime, limited heap and stack)
//!               └─ Realm of the current operation: globals, prelude.js, compiled functions
//!                    BSON ──to_js──► call ──from_js──► BSON        exceptions ──failure──► errors
//! ```
//!
//! Code runs in QuickJS, in a sandbox: no input or output, no modules, limited memory and stack,
//! and it ends when the operation's [`Interrupt`] demands it. Each thread keeps one engine; every
//! operation gets its own realm (its global objects), so that no client sees anything that another
//! one has left. A realm caches the functions that it compiled.
//!
//! `engine` has the realm and calls functions, `source` distinguishes the forms of source text,
//! `to_js` and `from_js` convert values, `originals` has what would lose types on the way,
//! `failure` converts exceptions to errors, `native` provides functions to `prelude.js`, which
//! defines MongoDB's types and global functions.
//!
//! Source: manual "$where", "$function", "$accumulator"; behaviour and messages recorded from
//! mongod 6.0.

mod engine;
mod failure;
mod from_js;
mod heap;
mod native;
mod originals;
mod source;
#[cfg(test)]
mod tests;
mod to_js;

pub(crate) use engine::Globals;

use std::sync::atomic::{AtomicBool, Ordering};

use marula_bson::{Doc, Value, ValueBuf};
use marula_error::{Result, errors};

use crate::context::Interrupt;

errors! {
    disabled() = 31_264, "Cannot run server-side javascript without the javascript engine enabled";
    disabled_where() = 6_108_304, "no globalScriptEngine in $where parsing";
}

/// Whether code may run in this process.
static IS_ENABLED: AtomicBool = AtomicBool::new(true);

/// Disables all code in this process from now on.
pub fn disable() {
    IS_ENABLED.store(false, Ordering::Release);
}

/// Returns whether code may run in this process.
pub fn is_enabled() -> bool {
    IS_ENABLED.load(Ordering::Acquire)
}

/// Checks that `source`, the code of a `$where`, compiles.
///
/// Errors: JSInterpreterFailure with the syntax error; JavaScript is disabled.
pub(crate) fn check(source: &str, interrupt: Option<&Interrupt>) -> Result<()> {
    if !is_enabled() {
        return Err(disabled_where());
    }
    engine::enter(interrupt, Globals::Stored, |call| call.function(source).map(drop))
}

/// Returns whether `source` is true for a document, which it sees as `this` and `obj`.
pub(crate) fn is_true_of(
    source: &str,
    doc: Doc<'_>,
    interrupt: Option<&Interrupt>,
) -> Result<bool> {
    engine::enter(interrupt, Globals::Stored, |call| call.truth(source, doc))
}

/// Calls the function of `source` with the elements of an array as arguments.
pub(crate) fn call(
    source: &str,
    args: Doc<'_>,
    globals: Globals,
    interrupt: Option<&Interrupt>,
) -> Result<ValueBuf> {
    engine::enter(interrupt, globals, |call| call.call(source, args.values()))
}

/// Makes each field of a document a global variable of the operation's code.
pub(crate) fn declare(scope: Doc<'_>, interrupt: Option<&Interrupt>) -> Result<()> {
    engine::enter(interrupt, Globals::Own, |call| call.declare(scope))
}

/// Calls the function of `source` with each document as `this`; calls `take` with each key and
/// value that it emits.
pub(crate) fn emit<'a>(
    source: &str,
    documents: impl Iterator<Item = Doc<'a>>,
    interrupt: Option<&Interrupt>,
    take: &mut dyn FnMut(ValueBuf, ValueBuf) -> Result<()>,
) -> Result<()> {
    engine::enter(interrupt, Globals::Stored, |call| call.emit(source, documents, take))
}

/// Calls the function of `source` once per list of arguments, with the previous result as the first
/// argument; returns the last result.
pub(crate) fn fold<'a>(
    source: &str,
    state: Value<'_>,
    lists: impl Iterator<Item = Doc<'a>>,
    interrupt: Option<&Interrupt>,
) -> Result<ValueBuf> {
    engine::enter(interrupt, Globals::Own, |call| call.fold(source, state, lists))
}
