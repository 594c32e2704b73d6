//! `$accumulator`: JavaScript over a group's documents.
//!
//! The state is BSON between calls. Arguments are batched, so that the state is converted to
//! JavaScript and back once per batch instead of once per document.
//!
//! Source: manual "$accumulator (aggregation)"; behaviour and messages recorded from mongod 6.0.

use std::cell::RefCell;
use std::sync::Arc;

use bstr::ByteSlice;
use marula_bson::{Doc, DocBuf, DocWriter, Value, ValueBuf};
use marula_error::{Result, errors};

use super::{Accumulator, AccumulatorRow, Settings, State};
use crate::context::{Context, Interrupt};
use crate::expression::{Arena, Expression, Frame, Scope, print};
use crate::feature_version::FeatureVersion;
use crate::javascript::{self, Globals};

pub(super) static ROWS: &[AccumulatorRow] = &[AccumulatorRow {
    name: "$accumulator",
    since: FeatureVersion::V6_0,
    parse,
    start: || Box::new(Nothing),
}];

errors! {
    not_constant(name: &str) = 4544701, "$accumulator '{name}' must be a constant expression";
    not_code(name: &str) = 4544702, "$accumulator '{name}' must be a String or Code";
    not_an_object(kind: &str) = 4544703, "$accumulator expects an object as an argument; found: {kind}";
    lang_not_string(kind: &str) = 4544704, "$accumulator lang must be a string; found: {kind}";
    lang_not_js() = 4544705, "$accumulator only supports lang: 'js'";
    unknown_field(name: &str) = 4544706, "$accumulator got an unexpected field: {name}";
    missing(number: i32, name: &str) = number, "$accumulator missing required argument '{name}'";
    init_args_not_array(text: &str) = 4544711, "$accumulator initArgs must evaluate to an array: {text}";
    args_not_array(text: &str) = 4544712, "$accumulator accumulateArgs must evaluate to an array: {text}";
}

/// The maximum size of a batch of arguments.
const WAITING_BYTES_MAX: usize = 64 * 1024;

/// The functions of an `$accumulator`.
#[derive(Debug)]
pub(super) struct Functions {
    init: String,
    init_args: Expression,
    accumulate: Arc<str>,
    merge: String,
    finalize: Option<Arc<str>>,
}

fn parse(
    row: &'static AccumulatorRow,
    value: Value<'_>,
    scope: &mut Scope<'_>,
) -> Result<Accumulator> {
    let doc = match value {
        Value::Document(doc) => doc,
        value => return Err(not_an_object(value.kind().alias())),
    };
    let (mut init, mut accumulate, mut merge, mut finalize) = (None, None, None, None);
    let (mut init_args, mut argument) = (None, None);
    for element in doc {
        let value = element.value.get();
        let name = element.name.to_str_lossy();
        match &*name {
            "init" => init = Some(code(&name, value, scope)?),
            "accumulate" => accumulate = Some(code(&name, value, scope)?),
            "merge" => merge = Some(code(&name, value, scope)?),
            "finalize" => finalize = Some(code(&name, value, scope)?),
            "initArgs" => init_args = Some(Expression::parse(value, scope)?),
            "accumulateArgs" => argument = Some(Expression::parse(value, scope)?),
            "lang" => match value {
                Value::String(lang) if lang == "js" => {}
                Value::String(_) => return Err(lang_not_js()),
                other => return Err(lang_not_string(other.kind().alias())),
            },
            _ => return Err(unknown_field(&name)),
        }
    }
    let functions = Functions {
        init: init.ok_or_else(|| missing(4544707, "init"))?,
        accumulate: accumulate.ok_or_else(|| missing(4544708, "accumulate"))?.into(),
        merge: merge.ok_or_else(|| missing(4544709, "merge"))?,
        init_args: init_args.unwrap_or_else(|| Expression::Array(Vec::new().into())),
        finalize: finalize.map(Arc::from),
    };
    let argument = argument.ok_or_else(|| missing(4544710, "accumulateArgs"))?;
    Ok(Accumulator { row, argument, settings: Settings::Script(Box::new(functions)) })
}

/// The text of a function, which may be a constant expression.
fn code(name: &str, value: Value<'_>, scope: &mut Scope<'_>) -> Result<String> {
    let mut expression = Expression::parse(value, scope)?;
    expression.optimize(&Context::default())?;
    match expression.as_constant().ok_or_else(|| not_constant(name))? {
        Value::String(code) | Value::Code(code) => Ok(code.to_str_lossy().into_owned()),
        _ => Err(not_code(name)),
    }
}

impl Functions {
    /// Starts a group with this key.
    pub(super) fn start(&self, key: Value<'_>, context: &Context) -> Result<Box<dyn State>> {
        let arena = Arena::new();
        let frame = Frame::new(key.as_doc().unwrap_or(Doc::EMPTY), &arena, context);
        let args = match self.init_args.eval(&frame)? {
            Some(Value::Array(args)) => args,
            other => return Err(init_args_not_array(&print::optional(other))),
        };
        let state = javascript::call(&self.init, args, Globals::Own, context.interrupt.as_ref())?;
        Ok(Box::new(Script {
            accumulate: self.accumulate.clone(),
            finalize: self.finalize.clone(),
            interrupt: context.interrupt.clone(),
            gathered: RefCell::new(Gathered { state, waiting: Vec::new(), waiting_bytes: 0 }),
        }))
    }

    /// Appends the fields shown by `explain`.
    pub(super) fn print(&self, argument: &Expression, out: &mut DocWriter<'_>) {
        out.append("init", Value::Code(self.init.as_bytes().as_bstr()));
        out.append("initArgs", &self.init_args.print());
        out.append("accumulate", Value::Code(self.accumulate.as_bytes().as_bstr()));
        out.append("accumulateArgs", &argument.print());
        out.append("merge", Value::Code(self.merge.as_bytes().as_bstr()));
        if let Some(finalize) = &self.finalize {
            out.append("finalize", Value::Code(finalize.as_bytes().as_bstr()));
        }
        out.append("lang", "js");
    }
}

/// The functions and the state of a group.
struct Script {
    accumulate: Arc<str>,
    finalize: Option<Arc<str>>,
    interrupt: Option<Interrupt>,
    gathered: RefCell<Gathered>,
}

struct Gathered {
    state: ValueBuf,
    /// The argument lists of the current batch.
    waiting: Vec<DocBuf>,
    waiting_bytes: usize,
}

impl Script {
    /// Calls the function with the batched arguments.
    fn flush(&self) -> Result<()> {
        let gathered = &mut *self.gathered.borrow_mut();
        if gathered.waiting.is_empty() {
            return Ok(());
        }
        let lists = gathered.waiting.iter().map(DocBuf::as_doc);
        let state = gathered.state.get();
        gathered.state = javascript::fold(&self.accumulate, state, lists, self.interrupt.as_ref())?;
        gathered.waiting.clear();
        gathered.waiting_bytes = 0;
        Ok(())
    }
}

impl State for Script {
    fn add<'a>(&mut self, value: Option<Value<'a>>, _: &Frame<'a>) -> Result<usize> {
        let Some(Value::Array(args)) = value else {
            return Err(args_not_array(&print::optional(value)));
        };
        let gathered = self.gathered.get_mut();
        let size = args.as_bytes().len();
        gathered.waiting.push(args.to_buf());
        gathered.waiting_bytes += size;
        if gathered.waiting_bytes < WAITING_BYTES_MAX {
            return Ok(0);
        }
        let before = gathered.state.as_raw().bytes().len();
        self.flush()?;
        let after = self.gathered.get_mut().state.as_raw().bytes().len();
        Ok(after.saturating_sub(before))
    }

    fn result<'a>(&self, arena: &'a Arena) -> Result<Value<'a>> {
        self.flush()?;
        let gathered = self.gathered.borrow();
        let Some(finalize) = &self.finalize else { return arena.keep(gathered.state.get()) };
        let args = DocBuf::build(|out| {
            out.append("0", &gathered.state);
        });
        let result =
            javascript::call(finalize, args.as_doc(), Globals::Own, self.interrupt.as_ref())?;
        arena.keep(result.get())
    }
}

/// The state of a row without functions, which parsing excludes.
struct Nothing;

impl State for Nothing {
    fn add<'a>(&mut self, _: Option<Value<'a>>, _: &Frame<'a>) -> Result<usize> {
        Ok(0)
    }

    fn result<'a>(&self, _: &'a Arena) -> Result<Value<'a>> {
        Ok(Value::Null)
    }
}
