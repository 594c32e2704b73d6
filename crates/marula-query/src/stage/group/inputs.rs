//! The values of a document that a `$group` reads: the fields for its key and its accumulators,
//! found in one walk.

use marula_bson::{Doc, FieldSet, RawValue};

use super::Field;
use crate::expression::Expression;

/// The number of fields found in one walk; expressions of other fields are evaluated.
pub(super) const SLOTS: usize = 8;

/// The source of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Input {
    /// The field in this slot of the walk.
    Field(usize),
    /// A constant.
    Constant,
    /// The result of an expression.
    Computed,
}

/// The sources of the key and of each accumulator's argument.
#[derive(Debug)]
pub(super) struct Inputs {
    fields: FieldSet,
    key: Input,
    args: Vec<Input>,
}

impl Inputs {
    /// Determines the sources of a key and of the arguments of fields.
    pub(super) fn of(key: &Expression, fields: &[Field]) -> Inputs {
        let mut set = FieldSet::new();
        let key = input(key, &mut set);
        let args = fields.iter().map(|(_, field)| input(field.argument(), &mut set)).collect();
        Inputs { fields: set, key, args }
    }

    /// Returns the source of the key.
    pub(super) fn key(&self) -> Input {
        self.key
    }

    /// Returns the sources of the accumulators' arguments.
    pub(super) fn args(&self) -> &[Input] {
        &self.args
    }

    /// Copies the fields of a document into their slots.
    #[inline]
    pub(super) fn find<'a>(&self, doc: Doc<'a>, found: &mut [Option<RawValue<'a>>; SLOTS]) {
        self.fields.find(doc, found);
    }
}

fn input(expression: &Expression, fields: &mut FieldSet) -> Input {
    match expression {
        Expression::Constant(_) => Input::Constant,
        Expression::Field(path) => match path.parts() {
            [name] => slot(name, fields).map_or(Input::Computed, Input::Field),
            _ => Input::Computed,
        },
        _ => Input::Computed,
    }
}

/// Returns the slot of a name, if one is free.
fn slot(name: &[u8], fields: &mut FieldSet) -> Option<usize> {
    if fields.place(name).is_none() && fields.names().count() < SLOTS {
        fields.insert(name);
    }
    fields.place(name)
}
