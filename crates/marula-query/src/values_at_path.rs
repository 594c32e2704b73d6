//! All values at a path, as `distinct` reads them.

use marula_bson::{FieldPath, Value};

/// Adds to `found` the values at the path from its part `at` on; for an array at its end, the
/// elements. In an array, a number is only the index of an element; any other part is a field of
/// each element that is a document.
pub fn find<'d>(path: &FieldPath, at: usize, value: Value<'d>, found: &mut Vec<Value<'d>>) {
    let Some(part) = path.parts().get(at) else {
        match value {
            Value::Array(array) => found.extend(array.values()),
            value => found.push(value),
        }
        return;
    };
    match (value, path.indexes()[at]) {
        (Value::Document(doc), _) => {
            if let Some(value) = doc.get(part) {
                find(path, at + 1, value, found);
            }
        }
        (Value::Array(array), Some(index)) => {
            if let Some(value) = array.values().nth(index as usize) {
                find(path, at + 1, value, found);
            }
        }
        (Value::Array(array), None) => {
            for element in array.values().filter(|element| element.as_doc().is_some()) {
                find(path, at, element, found);
            }
        }
        _ => {}
    }
}
