//! `$fill`: values for null or missing fields. Window functions fill from neighbours, then an
//! `$addFields` fills the others.

use bstr::ByteSlice;
use marula_bson::{Doc, DocBuf, Value};
use marula_error::{Result, errors};

use super::{Parser, StagePlace, StageRow, add_fields, set_window_fields};
use crate::expression::Expression;
use crate::feature_version::FeatureVersion;
use crate::once::{Once, unknown_field};

pub(super) const ROW: StageRow =
    StageRow { name: "$fill", since: FeatureVersion::V6_0, place: StagePlace::Anywhere, parse };

errors! {
    not_object(kind: &str) = FailedToParse, "The $fill stage specification must be an object, found {kind}";
    wrong_type(name: &str, kind: &str, expected: &str) = TypeMismatch, "BSON field '$fill.{name}' is the wrong type '{kind}', expected type '{expected}'";
    fields_not_array() = 10065, "invalid parameter: expected an object (partitionByFields)";
    embedded_nul() = 9527900, "illegal embedded NUL byte";
    no_output() = IDLFailedToParse, "BSON field '$fill.output' is missing but a required field";
    empty_output() = 6050203, "The output field in '$fill' must contain an object with at least one element";
    output_not_object() = 6050200, "Each fill output specification must be an object with exactly one field";
    value_and_method() = 6050201, "Each fill output specification must have exactly one of 'method' or 'value' fields, not both";
    unknown_method() = 6050202, "Method must be either locf or linear";
    two_partitions() = 6050204, "Maximum one of 'partitionBy' and 'partitionByFields can be specified in '$fill'";
}

/// The parts of a `$fill`.
#[derive(Default)]
struct Spec<'s> {
    partition_by: Option<Doc<'s>>,
    partition_by_fields: Option<Doc<'s>>,
    sort_by: Option<Doc<'s>>,
    output: Option<Doc<'s>>,
}

impl<'s> Spec<'s> {
    fn read(value: Value<'s>) -> Result<Self> {
        let Value::Document(doc) = value else {
            return Err(not_object(value.kind().alias()));
        };
        let mut spec = Spec::default();
        let mut once = Once::of("$fill");
        for element in doc {
            let (name, value) = (element.name.to_str_lossy(), element.value.get());
            let kind = value.kind().alias();
            let object = || value.as_doc().ok_or_else(|| wrong_type(&name, kind, "object"));
            match &*name {
                // As in other commands, a null field counts as absent.
                "partitionBy" | "sortBy" | "output" if value.is_nullish() => {}
                "partitionByFields" if value.is_nullish() => return Err(fields_not_array()),
                "partitionBy" => spec.partition_by = Some(object()?),
                "partitionByFields" => {
                    let fields = value.as_array();
                    let fields = fields.ok_or_else(|| wrong_type(&name, kind, "array"))?;
                    check_names(fields)?;
                    spec.partition_by_fields = Some(fields);
                }
                "sortBy" => spec.sort_by = Some(object()?),
                "output" => spec.output = Some(object()?),
                _ => return Err(unknown_field("$fill", element.name)),
            }
            once.note_given(element)?;
        }
        Ok(spec)
    }
}

fn check_names(fields: Doc<'_>) -> Result<()> {
    for (at, field) in fields.values().enumerate() {
        if field.as_str().is_some_and(|name| name.contains(&0)) {
            return Err(embedded_nul());
        }
        if field.as_str().is_none() && !field.is_nullish() {
            let name = format!("partitionByFields.{at}");
            return Err(wrong_type(&name, field.kind().alias(), "string"));
        }
    }
    Ok(())
}

fn parse(value: Value<'_>, parser: &mut Parser<'_>) -> Result<()> {
    let spec = Spec::read(value)?;
    let output = spec.output.ok_or_else(no_output)?;
    if output.is_empty() {
        return Err(empty_output());
    }
    if spec.partition_by.is_some() && spec.partition_by_fields.is_some() {
        return Err(two_partitions());
    }
    let (mut windows, mut values) = (DocBuf::new(), DocBuf::new());
    for element in output {
        let name = element.name;
        let path = format!("${}", name.to_str_lossy());
        let Value::Document(how) = element.value.get() else {
            return Err(output_not_object());
        };
        match method(how)? {
            FillMethod::Nothing => {}
            FillMethod::Method(function) => {
                let call = DocBuf::build(|out| {
                    out.append(function, path.as_str());
                });
                windows.push(name, &call);
            }
            FillMethod::Value(value) => {
                let call = DocBuf::build(|out| {
                    let mut arguments = out.begin_array("$ifNull");
                    arguments.push(path.as_str()).push(value);
                });
                values.push(name, &call);
            }
        }
    }
    if !windows.as_doc().is_empty() {
        let partition_by = match (spec.partition_by, spec.partition_by_fields) {
            (Some(expression), _) => Some(Value::Document(expression).to_buf()),
            (None, Some(fields)) if !fields.is_empty() => Some(by_fields(fields)),
            (None, _) => None,
        };
        let partition_by = match partition_by {
            Some(value) => Some(Expression::parse(value.get(), &mut parser.scope())?),
            None => None,
        };
        set_window_fields::push(partition_by, spec.sort_by, windows.as_doc(), parser)?;
    }
    if !values.as_doc().is_empty() {
        add_fields::parse("$addFields", Value::Document(values.as_doc()), parser)?;
    }
    Ok(())
}

/// How a field is filled.
enum FillMethod<'s> {
    /// Without a value or a method: mongod accepts that, and leaves the field unchanged.
    Nothing,
    /// The window function of a method.
    Method(&'static str),
    /// An expression.
    Value(Value<'s>),
}

fn method(how: Doc<'_>) -> Result<FillMethod<'_>> {
    let (mut filling, mut method) = (FillMethod::Nothing, None);
    let mut once = Once::of("$fill");
    for element in how {
        let value = element.value.get();
        match (&**element.name, value) {
            (b"value", _) => filling = FillMethod::Value(value),
            (b"method", Value::Null | Value::Undefined) => continue,
            (b"method", Value::String(name)) => method = Some(name),
            (b"method", _) => return Err(wrong_type("method", value.kind().alias(), "string")),
            _ => return Err(unknown_field("$fill", element.name)),
        }
        once.note(element.name)?;
    }
    match (filling, method.map(|name| name.as_bytes())) {
        (FillMethod::Value(_), Some(_)) => Err(value_and_method()),
        (filling, None) => Ok(filling),
        (_, Some(b"locf")) => Ok(FillMethod::Method("$locf")),
        (_, Some(b"linear")) => Ok(FillMethod::Method("$linearFill")),
        (_, Some(_)) => Err(unknown_method()),
    }
}

/// Returns the document of the fields that identify a partition.
fn by_fields(fields: Doc<'_>) -> marula_bson::ValueBuf {
    let doc = DocBuf::build(|out| {
        for name in fields.values().filter_map(|field| field.as_str()) {
            out.append(name, format!("${}", name.to_str_lossy()).as_str());
        }
    });
    Value::Document(doc.as_doc()).to_buf()
}
