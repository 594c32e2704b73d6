//! The JavaScript engine of a thread: its runtime, the realm of the current operation, calls.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use marula_bson::{Doc, Value, ValueBuf};
use marula_error::{Error, Result, errors};
use rquickjs::context::{EvalOptions, intrinsic};
use rquickjs::function::Args;
use rquickjs::{
    Array, CatchResultExt, Context, Ctx, FromJs, Function, Object, Persistent, Runtime, Symbol,
};

use super::heap::{Heap, Running};
use super::originals::Originals;
use super::{failure, from_js, native, source, to_js};
use crate::context::Interrupt;
use crate::meter;

/// The maximum heap of the code of one thread.
pub(super) const HEAP_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The maximum stack of code; threads have 2 MiB, of which the query needs a part.
const STACK_BYTES_MAX: usize = 512 * 1024;

/// The maximum number of functions that a realm caches: an operation has a handful.
const FUNCTIONS_MAX: usize = 64;

/// The supported parts of the language. No modules. Only the prelude makes proxies: it could not
/// bound the lengths of others.
type Intrinsics = (
    intrinsic::Date,
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
    intrinsic::Proxy,
);

errors! {
    /// The engine could not be started.
    no_engine(reason: &str) = JSInterpreterFailure, "could not start JavaScript: {reason}";
    /// The source is an expression where a function is needed.
    not_a_function() = 10232, "not a function";
}

thread_local! {
    /// The thread's engine. A call takes it and puts it back, so that a panic leaves none in place.
    static ENGINE: Cell<Option<Engine>> = const { Cell::new(None) };
    /// The interrupt of the current call, and the error that ended it.
    static WATCH: RefCell<Watch> = const { RefCell::new(Watch { interrupt: None, error: None }) };
}

#[derive(Default)]
struct Watch {
    interrupt: Option<Interrupt>,
    error: Option<Error>,
}

/// Returns whether the current call must end.
pub(super) fn must_end() -> bool {
    WATCH.with_borrow_mut(|watch| {
        if watch.error.is_some() {
            return true;
        }
        let asked = meter::settle();
        match asked.and_then(|()| watch.interrupt.as_ref().map_or(Ok(()), Interrupt::check)) {
            Ok(()) => false,
            Err(error) => {
                watch.error = Some(error);
                true
            }
        }
    })
}

/// Records that the current call must end.
pub(super) fn note_end(error: Error) {
    WATCH.with_borrow_mut(|watch| {
        watch.error.get_or_insert(error);
    });
}

/// Fields are dropped in order: objects within the runtime go before it.
struct Engine {
    realm: Option<Realm>,
    runtime: Runtime,
}

/// The globals of code in addition to those of the language and its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Globals {
    /// No others.
    Own,
    /// The stored code of the database.
    Stored,
}

/// Functions by their source.
type Functions = RefCell<Vec<(Arc<str>, Persistent<Function<'static>>)>>;

/// The global objects of one operation and the functions compiled in them.
struct Realm {
    /// The operation of the realm.
    interrupt: Option<Interrupt>,
    functions: Functions,
    /// Whether the stored code of the database is among its globals.
    has_stored: Cell<bool>,
    originals: RefCell<Originals>,
    kit: Persistent<Object<'static>>,
    context: Context,
}

/// Runs `work` in the realm of the operation of `interrupt`, with these additional globals.
pub(super) fn enter<R>(
    interrupt: Option<&Interrupt>,
    globals: Globals,
    work: impl FnOnce(&Call<'_, '_>) -> Result<R>,
) -> Result<R> {
    if !super::is_enabled() {
        return Err(super::disabled());
    }
    meter::settle()?;
    if let Some(interrupt) = interrupt {
        interrupt.check()?;
    }
    WATCH.set(Watch { interrupt: interrupt.cloned(), error: None });
    let mut engine = match ENGINE.take() {
        Some(engine) => engine,
        None => Engine::start()?,
    };
    let outcome = engine.realm(interrupt).and_then(|realm| {
        realm.context.with(|ctx| {
            let kit = Kit::restore(&ctx, realm)?;
            let call = Call::new(&ctx, &realm.functions, &realm.originals, kit);
            if globals == Globals::Stored
                && !realm.has_stored.get()
                && let Some(interrupt) = interrupt
            {
                call.share(interrupt.stored_code()?.as_doc());
                realm.has_stored.set(true);
            }
            work(&call)
        })
    });
    let ended = WATCH.take().error;
    ENGINE.set(Some(engine));
    // Code may catch the exception of an interrupt; the operation ends nevertheless.
    match ended {
        Some(error) => Err(error),
        None => outcome,
    }
}

impl Engine {
    fn start() -> Result<Engine> {
        let runtime =
            Runtime::new_with_alloc(Heap).map_err(|error| no_engine(&error.to_string()))?;
        runtime.set_memory_limit(HEAP_BYTES_MAX);
        runtime.set_max_stack_size(STACK_BYTES_MAX);
        runtime.set_interrupt_handler(Some(Box::new(must_end)));
        Ok(Engine { realm: None, runtime })
    }

    fn realm(&mut self, interrupt: Option<&Interrupt>) -> Result<&Realm> {
        if self.realm.as_ref().is_none_or(|realm| realm.interrupt.as_ref() != interrupt) {
            self.realm = None;
            self.runtime.run_gc();
            self.realm = Some(Realm::new(&self.runtime, interrupt)?);
        }
        Ok(self.realm.as_ref().expect("it was just made"))
    }
}

impl Realm {
    fn new(runtime: &Runtime, interrupt: Option<&Interrupt>) -> Result<Realm> {
        let context = Context::custom::<Intrinsics>(runtime)
            .map_err(|error| no_engine(&error.to_string()))?;
        let kit = context.with(|ctx| {
            let start = || {
                let prelude: Function<'_> =
                    ctx.eval_with_options(include_str!("prelude.js"), options("prelude"))?;
                let kit: Object<'_> = prelude.call((native::functions(&ctx)?,))?;
                Ok(Persistent::save(&ctx, kit))
            };
            start().catch(&ctx).map_err(|error| no_engine(&error.to_string()))
        })?;
        Ok(Realm {
            interrupt: interrupt.cloned(),
            functions: RefCell::default(),
            has_stored: Cell::new(false),
            originals: RefCell::default(),
            kit,
            context,
        })
    }
}

/// The evaluation options: as a script in sloppy mode, as in MongoDB.
pub(super) fn options(file: &str) -> EvalOptions {
    let mut options = EvalOptions::default();
    options.strict = false;
    options.filename = Some(file.to_owned());
    options
}

/// The objects of the prelude that Rust needs in a call.
pub(super) struct Kit<'js> {
    functions: Object<'js>,
    /// The symbol under which a document stores the names of its int32 fields.
    pub(super) ints: Symbol<'js>,
    /// The symbol under which a document stores its number among the originals.
    pub(super) original: Symbol<'js>,
    /// The symbol under which an error of the prelude stores its code.
    pub(super) code: Symbol<'js>,
    /// The prototype of documents.
    pub(super) document: Object<'js>,
    /// The prototype of `DBRef`s.
    pub(super) reference: Object<'js>,
}

impl<'js> Kit<'js> {
    fn restore(ctx: &Ctx<'js>, realm: &Realm) -> Result<Kit<'js>> {
        let kit = realm.kit.clone().restore(ctx).and_then(Kit::new);
        kit.map_err(|error| no_engine(&error.to_string()))
    }

    /// Takes the objects from the result of the prelude.
    pub(super) fn new(functions: Object<'js>) -> rquickjs::Result<Kit<'js>> {
        Ok(Kit {
            ints: functions.get("ints")?,
            original: functions.get("original")?,
            code: functions.get("code")?,
            document: functions.get("document")?,
            reference: functions.get("reference")?,
            functions,
        })
    }

    /// A function of the prelude.
    pub(super) fn function(&self, name: &str) -> rquickjs::Result<Function<'js>> {
        self.functions.get(name)
    }

    /// A value of the prelude.
    pub(super) fn value(&self, name: &str) -> rquickjs::Result<rquickjs::Value<'js>> {
        self.functions.get(name)
    }
}

/// A call into a realm.
pub(super) struct Call<'c, 'js> {
    pub(super) ctx: &'c Ctx<'js>,
    functions: &'c Functions,
    pub(super) kit: Kit<'js>,
    pub(super) originals: &'c RefCell<Originals>,
}

impl<'c, 'js> Call<'c, 'js> {
    /// A call with the functions that are compiled already.
    pub(super) fn new(
        ctx: &'c Ctx<'js>,
        functions: &'c Functions,
        originals: &'c RefCell<Originals>,
        kit: Kit<'js>,
    ) -> Self {
        originals.borrow_mut().clear();
        Call { ctx, functions, kit, originals }
    }

    /// The function of `source`, compiled once per realm.
    pub(super) fn function(&self, source: &str) -> Result<Function<'js>> {
        let known = self.functions.borrow().iter().find(|(text, _)| **text == *source).cloned();
        if let Some((_, function)) = known {
            return function.restore(self.ctx).map_err(|error| no_engine(&error.to_string()));
        }
        let value = source::compile(self, source)?;
        let function = value.into_function().ok_or_else(not_a_function)?;
        let saved = Persistent::save(self.ctx, function.clone());
        let mut functions = self.functions.borrow_mut();
        if functions.len() == FUNCTIONS_MAX {
            functions.clear();
        }
        functions.push((source.into(), saved));
        Ok(function)
    }

    /// Returns whether the function of `source` is true for `doc`.
    pub(super) fn truth(&self, source: &str, doc: Doc<'_>) -> Result<bool> {
        let function = self.function(source)?;
        let run = || -> rquickjs::Result<bool> {
            let this = to_js::document(self, doc, to_js::Integers::Forget)?;
            let globals = self.ctx.globals();
            globals.set("obj", this.clone())?;
            globals.set("fullObject", this.clone())?;
            let mut args = Args::new(self.ctx.clone(), 0);
            args.this(this)?;
            let result: rquickjs::Value<'js> = run_code(&function, args)?;
            Ok(is_true(&result))
        };
        run().map_err(|error| failure::of(self, error))
    }

    /// Calls the function of `source`; returns its result as BSON.
    pub(super) fn call<'a>(
        &self,
        source: &str,
        values: impl Iterator<Item = Value<'a>>,
    ) -> Result<ValueBuf> {
        let function = self.function(source)?;
        let args = values
            .map(|value| to_js::value(self, value, to_js::Integers::Note))
            .collect::<rquickjs::Result<Vec<_>>>()
            .map_err(|error| failure::of(self, error))?;
        from_js::value(self, &self.apply(&function, args)?)
    }

    /// Makes each field of a document a global variable if possible; code that does not compile is
    /// reported only when it is called.
    fn share(&self, stored: Doc<'_>) {
        for element in stored {
            if let Ok(value) = to_js::value(self, element.value.get(), to_js::Integers::Note) {
                // A global that is not writable stays unchanged.
                let _ = self.ctx.globals().set(element.name.to_string(), value);
            }
            // Its exception does not belong to the code that runs now.
            self.ctx.catch();
        }
        self.originals.borrow_mut().keep();
    }

    /// Makes each field of a document a global variable.
    pub(super) fn declare(&self, scope: Doc<'_>) -> Result<()> {
        let run = || -> rquickjs::Result<()> {
            let globals = self.ctx.globals();
            for element in scope {
                let value = to_js::value(self, element.value.get(), to_js::Integers::Note)?;
                globals.set(element.name.to_string(), value)?;
            }
            self.originals.borrow_mut().keep();
            Ok(())
        };
        run().map_err(|error| failure::of(self, error))
    }

    /// Calls the function of `source` with each document as `this`; calls `take` with everything
    /// that it emits.
    pub(super) fn emit<'a>(
        &self,
        source: &str,
        documents: impl Iterator<Item = Doc<'a>>,
        take: &mut dyn FnMut(ValueBuf, ValueBuf) -> Result<()>,
    ) -> Result<()> {
        let function = self.function(source)?;
        let failed = |error| failure::of(self, error);
        let pairs: Array<'js> =
            self.kit.function("emitter").and_then(|emitter| emitter.call(())).map_err(failed)?;
        for document in documents {
            self.originals.borrow_mut().clear();
            let run = || -> rquickjs::Result<()> {
                let mut args = Args::new(self.ctx.clone(), 0);
                args.this(to_js::document(self, document, to_js::Integers::Note)?)?;
                run_code(&function, args)
            };
            run().map_err(failed)?;
            for at in (0..pairs.len()).step_by(2) {
                let key: rquickjs::Value<'js> = pairs.get(at).map_err(failed)?;
                let value: rquickjs::Value<'js> = pairs.get(at + 1).map_err(failed)?;
                let (key, value) = from_js::emitted(self, [&key, &value])?;
                take(key, value)?;
            }
            pairs.as_object().set("length", 0).map_err(failed)?;
        }
        Ok(())
    }

    /// Calls the function of `source` with the state and each list of arguments in turn.
    pub(super) fn fold<'a>(
        &self,
        source: &str,
        state: Value<'_>,
        lists: impl Iterator<Item = Doc<'a>>,
    ) -> Result<ValueBuf> {
        let function = self.function(source)?;
        let to_js = |value| {
            to_js::value(self, value, to_js::Integers::Note)
                .map_err(|error| failure::of(self, error))
        };
        let mut state = to_js(state)?;
        for list in lists {
            self.originals.borrow_mut().clear();
            let mut args = vec![state];
            for value in list.values() {
                args.push(to_js(value)?);
            }
            state = self.apply(&function, args)?;
            if state.is_undefined() {
                state = rquickjs::Value::new_null(self.ctx.clone());
            }
        }
        from_js::value(self, &state)
    }

    fn apply(
        &self,
        function: &Function<'js>,
        values: Vec<rquickjs::Value<'js>>,
    ) -> Result<rquickjs::Value<'js>> {
        let run = || {
            let mut args = Args::new(self.ctx.clone(), values.len());
            // Sloppy code without a `this` would get the global object.
            args.this(Object::new_proto(self.ctx.clone(), Some(&self.kit.document))?)?;
            args.push_args(values)?;
            run_code(function, args)
        };
        run().map_err(|error| failure::of(self, error))
    }
}

/// Calls a client's function.
fn run_code<'js, R: FromJs<'js>>(function: &Function<'js>, args: Args<'js>) -> rquickjs::Result<R> {
    let _running = Running::begin();
    function.call_arg(args)
}

/// Truth value in JavaScript.
fn is_true(value: &rquickjs::Value<'_>) -> bool {
    if let Some(flag) = value.as_bool() {
        return flag;
    }
    if let Some(number) = value.as_number() {
        return number != 0.0 && !number.is_nan();
    }
    if let Some(text) = value.as_string() {
        return text.clone().to_cstring().is_ok_and(|text| !text.is_empty());
    }
    if let Some(number) = value.as_big_int() {
        return !number.clone().to_i64().is_ok_and(|number| number == 0);
    }
    !value.is_null() && !value.is_undefined()
}
