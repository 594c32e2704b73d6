//! The variables that are visible at a stage.
//!
//! Stages that parse a filter or a pipeline when they run, as `$lookup` does for each document,
//! store the variables that were visible when they were parsed: inside a `$lookup` those are its
//! variables, otherwise the command's.

use marula_bson::{Doc, DocBuf, Value};

use crate::context::Context;

/// The variables around a stage: those with values, and those without.
#[derive(Clone, Debug)]
pub(super) struct OuterVariables {
    values: Option<DocBuf>,
    missing: Vec<String>,
}

impl OuterVariables {
    /// Returns the variables that are visible to a stage parsed in `context`.
    pub(super) fn of(context: &Context) -> OuterVariables {
        OuterVariables {
            values: context.let_variables.clone(),
            missing: context.missing_variables.clone(),
        }
    }

    /// Returns the context with these variables.
    pub(super) fn context(&self, context: &Context) -> Context {
        self.with(context, &[], &[])
    }

    /// Returns the context with these and further variables; a further variable hides one of the
    /// same name.
    pub(super) fn with(
        &self,
        context: &Context,
        values: &[(&str, Value<'_>)],
        missing: &[&str],
    ) -> Context {
        let around = self.values.as_ref().map_or(Doc::EMPTY, DocBuf::as_doc);
        let is_new = |name: &[u8]| {
            missing.iter().any(|new| new.as_bytes() == name)
                || values.iter().any(|(new, _)| new.as_bytes() == name)
        };
        let all = DocBuf::build(|out| {
            for (name, value) in values {
                out.append(name, *value);
            }
            for element in around.iter().filter(|element| !is_new(element.name)) {
                out.append_raw(element.name, element.value);
            }
        });
        let outer_missing = self.missing.iter().filter(|name| !is_new(name.as_bytes())).cloned();
        let missing_variables =
            missing.iter().map(|name| (*name).to_owned()).chain(outer_missing).collect();
        Context { let_variables: Some(all), missing_variables, ..context.clone() }
    }
}
