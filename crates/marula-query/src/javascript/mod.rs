//! JavaScript: `$where`, `$function`, `$accumulator`, `mapReduce`.
//!
//! Code runs in QuickJS, in a sandbox: no input or output, no modules, a bound on memory and on
//! stack, and an end when the operation's [`Interrupt`] says so. Each thread keeps one engine;
//! within it every operation gets a realm (its global objects) of its own, so that nothing one
//! client leaves behind is seen by another. A realm remembers the functions it compiled.
//!
//! `engine` holds the realm and calls functions, `source` tells the forms of source text apart,
//! `to_js` and `from_js` carry values over, `failure` turns exceptions into errors, `native` lends
//! functions to `prelude.js`, which defines MongoDB's types and global functions.
//!
//! Source: manual "$where", "$function", "$accumulator"; behaviour and messages recorded from
//! mongod 6.0.

mod engine;
mod failure;
mod from_js;
mod heap;
mod native;
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

/// Refuses all code in this process from now on.
pub fn disable() {
    IS_ENABLED.store(false, Ordering::Release);
}

/// Whether code may run in this process.
pub fn is_enabled() -> bool {
    IS_ENABLED.load(Ordering::Acquire)
}

/// Checks that `source`, the code of a `$where`, compiles.
///
/// Errors: JSInterpreterFailure with the syntax error; that there is no JavaScript.
pub(crate) fn check(source: &str, interrupt: Option<&Interrupt>) -> Result<()> {
    if !is_enabled() {
        return Err(disabled_where());
    }
    engine::enter(interrupt, Globals::Stored, |call| call.function(source).map(drop))
}

/// Whether `source` is true of a document, which it sees as `this` and `obj`.
pub(crate) fn is_true_of(
    source: &str,
    doc: Doc<'_>,
    interrupt: Option<&Interrupt>,
) -> Result<bool> {
    engine::enter(interrupt, Globals::Stored, |call| call.truth(source, doc))
}

/// Calls the function of `source` with the elements of an array.
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

/// Calls the function of `source` with each document as `this`; `take` is shown each key and value
/// that it emits.
pub(crate) fn emit<'a>(
    source: &str,
    documents: impl Iterator<Item = Doc<'a>>,
    interrupt: Option<&Interrupt>,
    take: &mut dyn FnMut(ValueBuf, ValueBuf) -> Result<()>,
) -> Result<()> {
    engine::enter(interrupt, Globals::Stored, |call| call.emit(source, documents, take))
}

/// Calls the function of `source` once for each list of arguments, each time with the result of the
/// call before as the first argument; answers the last result.
pub(crate) fn fold<'a>(
    source: &str,
    state: Value<'_>,
    lists: impl Iterator<Item = Doc<'a>>,
    interrupt: Option<&Interrupt>,
) -> Result<ValueBuf> {
    engine::enter(interrupt, Globals::Own, |call| call.fold(source, state, lists))
}
