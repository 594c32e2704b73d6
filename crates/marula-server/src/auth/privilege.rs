//! Privileges: actions on a resource, in commands and as they are stored.
//!
//! Source: manual "Privileges"; errors recorded from mongod 6.0.

use marula_bson::{ArrayWriter, ByteSlice, Doc, Element, Type, Value, ValueBuf};
use marula_db::namespace::is_database_name;
use marula_error::{Error, Result, errors};

use super::action::ActionSet;
use super::documents::array;
use super::resource::Resource;

errors! {
    no_actions() = FailedToParse, "missing actions field";
    no_resource() = FailedToParse, "missing resource field";
    half_a_namespace() = FailedToParse, "resource must set both db and collection or neither, but not exactly one.";
    not_one_resource() = FailedToParse, "resource must have exactly db and collection set, or have only cluster set  or have only anyResource set";
    not_true(field: &str) = FailedToParse, "{field} must be true when specified";
    bad_database(db: &str) = FailedToParse, "{db} is not a valid database name";
    bad_collection(collection: &str) = FailedToParse, "{collection} is not a valid collection name";
    two_collections() = FailedToParse, "system_buckets and collection cannot both be set";
    unknown_action(action: &str) = BadValue, "Unrecognized action: {action}";
    unknown_actions(actions: &str) = BadValue, "Unrecognized actions: {actions}";
    unparsable(privilege: Doc<'_>, why: &str) = BadValue, "Unable to parse privilege document: {privilege}, error: {why}";
}

/// Actions on a resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Privilege {
    /// The resource.
    pub(crate) resource: Resource,
    /// The actions.
    pub(crate) actions: ActionSet,
}

impl Privilege {
    /// Parses an array of privileges; those on the same resource are merged.
    pub(crate) fn parse_list(privileges: Doc<'_>) -> Result<Vec<Privilege>> {
        let mut list = Vec::new();
        for privilege in privileges.values().filter_map(|privilege| privilege.as_doc()) {
            add(&mut list, Privilege::parse(privilege)?);
        }
        Ok(list)
    }

    /// Reads the privileges of a stored document; invalid ones are ignored.
    pub(crate) fn stored_list(doc: Doc<'_>) -> Vec<Privilege> {
        let stored = doc.get("privileges").and_then(|list| list.as_array()).unwrap_or(Doc::EMPTY);
        let mut list = Vec::new();
        for privilege in stored.values().filter_map(|privilege| privilege.as_doc()) {
            if let Ok(privilege) = Privilege::parse(privilege) {
                add(&mut list, privilege);
            }
        }
        list
    }

    fn parse(doc: Doc<'_>) -> Result<Self> {
        let types = check_types(doc);
        types.map_err(|why| unparsable(doc, &why))?;
        let names = doc.get("actions").and_then(|actions| actions.as_array());
        let names = names.filter(|names| !names.is_empty()).ok_or_else(no_actions)?;
        let resource = doc.get("resource").and_then(|resource| resource.as_doc());
        let resource = parse_resource(resource.ok_or_else(no_resource)?)?;
        let mut actions = ActionSet::default();
        let mut unknown = Vec::new();
        for name in names.values().filter_map(|name| name.as_str()) {
            let name = name.to_str_lossy();
            if !actions.insert(&name) {
                unknown.push(name.into_owned());
            }
        }
        match unknown.as_slice() {
            [] => Ok(Privilege { resource, actions }),
            [one] => Err(unknown_action(one)),
            several => Err(unknown_actions(&several.join(", "))),
        }
    }

    /// Appends `{ resource, actions }`.
    pub(crate) fn write(&self, out: &mut ArrayWriter<'_>) {
        let mut privilege = out.begin_doc();
        self.resource.write(&mut privilege);
        self.actions.write(&mut privilege.begin_array("actions"));
    }
}

/// Adds a privilege to a list with one entry for each resource.
pub(crate) fn add(list: &mut Vec<Privilege>, privilege: Privilege) {
    match list.iter_mut().find(|known| known.resource == privilege.resource) {
        Some(known) => known.actions.add(&privilege.actions),
        None => list.push(privilege),
    }
}

/// Removes a privilege's actions; a resource without actions is removed.
pub(crate) fn remove(list: &mut Vec<Privilege>, privilege: &Privilege) {
    for known in list.iter_mut().filter(|known| known.resource == privilege.resource) {
        known.actions.remove(&privilege.actions);
    }
    list.retain(|known| !known.actions.is_empty());
}

/// Checks the types of a privilege's fields, with mongod's messages.
fn check_types(privilege: Doc<'_>) -> std::result::Result<(), String> {
    for field in privilege {
        match field.name.as_bytes() {
            b"actions" => {
                let Value::Array(actions) = field.value.get() else {
                    return Err(wrong_type(field, "vector array"));
                };
                for (at, action) in actions.iter().enumerate() {
                    if action.value.kind() != Type::String {
                        let why = wrong_type(action, "string");
                        return Err(format!(
                            "error parsing element {at} of field actions :: caused by :: {why}"
                        ));
                    }
                }
            }
            b"resource" => {
                let Value::Document(resource) = field.value.get() else {
                    return Err(wrong_type(field, "Object/Array"));
                };
                for field in resource {
                    let (kind, expected) = match field.name.as_bytes() {
                        b"db" | b"collection" | b"system_buckets" => (Type::String, "string"),
                        b"cluster" | b"anyResource" => (Type::Boolean, "boolean"),
                        _ => continue,
                    };
                    if field.value.kind() != kind {
                        return Err(wrong_type(field, expected));
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn wrong_type(field: Element<'_>, expected: &str) -> String {
    let (name, value) = (field.name, field.value.get());
    format!("wrong type for '{name}' field, expected {expected}, found {name}: {value}")
}

/// Parses a resource whose fields have the right types.
fn parse_resource(resource: Doc<'_>) -> Result<Resource> {
    let text = |name: &str| resource.get(name).and_then(|value| value.as_str());
    let text = |name: &str| text(name).map(|text| text.to_string());
    let flag = |name: &'static str| match resource.get(name) {
        None => Ok(false),
        Some(Value::Boolean(true)) => Ok(true),
        Some(_) => Err(not_true(name)),
    };
    let (db, collection, buckets) = (text("db"), text("collection"), text("system_buckets"));
    let (is_cluster, is_any) = (resource.get("cluster"), resource.get("anyResource"));
    let is_namespace = collection.is_some() || buckets.is_some();
    if buckets.is_some() && collection.is_some() {
        return Err(two_collections());
    }
    if buckets.is_none() && db.is_some() != collection.is_some() {
        return Err(half_a_namespace());
    }
    let ways = [is_namespace, is_cluster.is_some(), is_any.is_some()];
    if ways.iter().filter(|&&is_said| is_said).count() != 1 {
        return Err(not_one_resource());
    }
    if flag("cluster")? {
        return Ok(Resource::Cluster);
    }
    if flag("anyResource")? {
        return Ok(Resource::Any);
    }
    let db = check_database(db.unwrap_or_default())?;
    Ok(match buckets {
        Some(collection) => Resource::Buckets { db, collection: check_collection(collection)? },
        None => {
            let collection = check_collection(collection.unwrap_or_default())?;
            Resource::Collections { db, collection }
        }
    })
}

fn check_database(db: String) -> Result<String, Error> {
    // Unlike a command, a privilege may name a database with a dollar sign: `$external`.
    match db.is_empty() || is_database_name(&db.replace('$', "_")) {
        true => Ok(db),
        false => Err(bad_database(&db)),
    }
}

fn check_collection(collection: String) -> Result<String, Error> {
    let is_name = !collection.starts_with('.') && !collection.contains(['$', '\0']);
    if is_name { Ok(collection) } else { Err(bad_collection(&collection)) }
}

/// Returns the array of privileges for stored roles.
pub(crate) fn array_of(privileges: &[Privilege]) -> ValueBuf {
    array(|out| privileges.iter().for_each(|privilege| privilege.write(out)))
}

#[cfg(test)]
mod tests {
    use marula_bson::{DocBuf, doc};

    use super::*;

    fn parse(privilege: &DocBuf) -> std::result::Result<String, String> {
        let list = doc! { "p": [privilege] };
        let list = list.as_doc().get("p").and_then(|list| list.as_array()).unwrap();
        let parsed = Privilege::parse_list(list).map_err(|error| error.message().to_owned())?;
        let written = DocBuf::build(|out| {
            let mut out = out.begin_array("p");
            parsed.iter().for_each(|privilege| privilege.write(&mut out));
        });
        let written = written.as_doc().get("p").and_then(|list| list.as_array()).unwrap();
        Ok(written.get("0").unwrap().to_string())
    }

    fn accepts(privilege: DocBuf, expected: &str) {
        assert_eq!(parse(&privilege).as_deref(), Ok(expected));
    }

    fn refuses(privilege: DocBuf, expected: &str) {
        assert_eq!(
            parse(&privilege).as_deref(),
            Err(expected).map_err(|text: &str| text.to_owned()).as_ref().map(String::as_str)
        );
    }

    #[test]
    fn privileges_are_read_and_written() {
        accepts(
            doc! { "resource": { "db": "d", "collection": "c", "x": 1 }, "actions": ["insert", "find", "find"] },
            "{ resource: { db: \"d\", collection: \"c\" }, actions: [ \"find\", \"insert\" ] }",
        );
        accepts(
            doc! { "resource": { "cluster": true }, "actions": ["serverStatus", "anyAction"] },
            "{ resource: { cluster: true }, actions: [ \"anyAction\" ] }",
        );
        accepts(
            doc! { "resource": { "db": "d", "system_buckets": "c" }, "actions": ["find"] },
            "{ resource: { system_buckets: \"c\", db: \"d\" }, actions: [ \"find\" ] }",
        );
    }

    #[test]
    fn what_is_no_privilege_is_refused() {
        refuses(doc! {}, "missing actions field");
        refuses(doc! { "resource": { "cluster": true }, "actions": [] }, "missing actions field");
        refuses(doc! { "actions": ["find"] }, "missing resource field");
        refuses(
            doc! { "resource": { "db": "d" }, "actions": ["find"] },
            half_a_namespace().message(),
        );
        refuses(doc! { "resource": {}, "actions": ["find"] }, not_one_resource().message());
        refuses(
            doc! { "resource": { "cluster": true, "anyResource": true }, "actions": ["find"] },
            not_one_resource().message(),
        );
        refuses(
            doc! { "resource": { "cluster": false }, "actions": ["find"] },
            "cluster must be true when specified",
        );
        refuses(
            doc! { "resource": { "db": "a b", "collection": "" }, "actions": ["find"] },
            "a b is not a valid database name",
        );
        refuses(
            doc! { "resource": { "cluster": true }, "actions": ["nope", "find", "nada"] },
            "Unrecognized actions: nope, nada",
        );
        refuses(
            doc! { "resource": { "db": 5, "collection": "c" }, "actions": ["find"] },
            "Unable to parse privilege document: { resource: { db: 5, collection: \"c\" }, actions: [ \"find\" ] }, error: wrong type for 'db' field, expected string, found db: 5",
        );
    }

    #[test]
    fn privileges_are_added_and_removed_by_resource() {
        let of = |actions: &[&str]| {
            let mut set = ActionSet::default();
            actions.iter().for_each(|action| assert!(set.insert(action)));
            Privilege { resource: Resource::Cluster, actions: set }
        };
        let mut list = Vec::new();
        add(&mut list, of(&["find"]));
        add(&mut list, of(&["insert"]));
        assert_eq!(list, [of(&["find", "insert"])]);
        remove(&mut list, &of(&["find", "update"]));
        assert_eq!(list, [of(&["insert"])]);
        remove(&mut list, &of(&["insert"]));
        assert!(list.is_empty());
    }
}
