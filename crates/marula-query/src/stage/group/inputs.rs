//! What a `$group` takes of a document: the fields that its key and its accumulators are, found in
//! one walk.

use marula_bson::{Doc, FieldSet, RawValue};

use super::Field;
use crate::expression::Expression;

/// So many fields are found at once; what reads others computes them.
pub(super) const SLOTS: usize = 8;

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Input {
    /// It is the field that the walk puts here.
    Field(usize),
    /// It is the same for every document.
    Constant,
    /// It is evaluated.
    Computed,
}

/// Where the key and the argument of each accumulator come from.
#[derive(Debug)]
pub(super) struct Inputs {
    fields: FieldSet,
    key: Input,
    args: Vec<Input>,
}

impl Inputs {
    /// Looks where a key and the arguments of fields come from.
    pub(super) fn of(key: &Expression, fields: &[Field]) -> Inputs {
        let mut set = FieldSet::new();
        let key = input(key, &mut set);
        let args = fields.iter().map(|(_, field)| input(field.argument(), &mut set)).collect();
        Inputs { fields: set, key, args }
    }

    /// Where the key comes from.
    pub(super) fn key(&self) -> Input {
        self.key
    }

    /// Where the accumulators' arguments come from.
    pub(super) fn args(&self) -> &[Input] {
        &self.args
    }

    /// Puts the fields of a document into their slots.
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

/// The slot of a name, where one is left.
fn slot(name: &[u8], fields: &mut FieldSet) -> Option<usize> {
    if fields.place(name).is_none() && fields.names().count() < SLOTS {
        fields.insert(name);
    }
    fields.place(name)
}
