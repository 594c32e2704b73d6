//! Names of users and roles: a name and the database that it belongs to.

use std::fmt;

use marula_bson::{ArrayWriter, Doc, Value, ValueBuf, doc_fields};
use marula_error::{Result, errors};

use super::documents::array;

errors! {
    not_a_name(kind: &str) = BadValue, "{kind} must be either a string or an object";
    not_a_role() = BadValue, "Role name must be either a document or string";
    missing(kind: &str, field: &str) = BadValue, "{kind} must contain a field named: {field}";
    not_a_string(kind: &str, field: &str, found: &str) = BadValue, "{kind} must contain a string field named: {field}. But, has type {found}";
    unknown_field(kind: &str, field: &str) = BadValue, "{kind} contains an unknown field named: '{field}";
}

/// A user or a role: its name and its database.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Name {
    /// Its own name.
    pub(crate) name: String,
    /// The database that it belongs to.
    pub(crate) db: String,
}

/// The kind of a name, for messages and fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Of {
    /// A user: `{ user, db }`.
    User,
    /// A role: `{ role, db }`.
    Role,
}

impl Of {
    fn kind(self) -> &'static str {
        match self {
            Of::User => "UserName",
            Of::Role => "RoleName",
        }
    }

    /// Returns the field with the name itself.
    pub(crate) fn field(self) -> &'static str {
        match self {
            Of::User => "user",
            Of::Role => "role",
        }
    }
}

impl Name {
    /// The name of `name` in `db`.
    pub(crate) fn new(name: &str, db: &str) -> Self {
        Name { name: name.to_owned(), db: db.to_owned() }
    }

    /// Parses a name: a string, for the database `db`, or a document with its own database.
    pub(crate) fn parse(of: Of, value: Value<'_>, db: &str) -> Result<Self> {
        let kind = of.kind();
        let doc = match value {
            Value::String(name) => return Ok(Name::new(&name.to_string(), db)),
            Value::Document(doc) => doc,
            _ => return Err(not_a_name(kind)),
        };
        let text = |field: &'static str| match doc.get(field) {
            None => Err(missing(kind, field)),
            Some(Value::String(text)) => Ok(text.to_string()),
            Some(other) => Err(not_a_string(kind, field, other.kind().alias())),
        };
        let known = [of.field(), "db"];
        if of == Of::User
            && let Some(other) =
                doc.iter().find(|field| known.iter().all(|&name| field.name != name))
        {
            return Err(unknown_field(kind, &other.name.to_string()));
        }
        Ok(Name { name: text(of.field())?, db: text("db")? })
    }

    /// Parses an array of roles, each once, in the order of their first occurrence.
    pub(crate) fn parse_roles(roles: Doc<'_>, db: &str) -> Result<Vec<Name>> {
        let mut names: Vec<Name> = Vec::new();
        for role in roles.values() {
            if !matches!(role, Value::String(_) | Value::Document(_)) {
                return Err(not_a_role());
            }
            let name = Name::parse(Of::Role, role, db)?;
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Reads the roles of a stored document; invalid ones are ignored.
    pub(crate) fn stored_roles(doc: Doc<'_>) -> Vec<Name> {
        let roles = doc.get("roles").and_then(|roles| roles.as_array()).unwrap_or(Doc::EMPTY);
        roles.values().filter_map(|role| Name::parse(Of::Role, role, "").ok()).collect()
    }

    /// Returns the `_id` of its document.
    pub(crate) fn id(&self) -> String {
        format!("{}.{}", self.db, self.name)
    }

    /// Returns the array of `{ role, db }` for stored documents.
    pub(crate) fn array_of_roles(roles: &[Name]) -> ValueBuf {
        array(|out| roles.iter().for_each(|role| role.write_role(out)))
    }

    /// Appends `{ role, db }`.
    pub(crate) fn write_role(&self, out: &mut ArrayWriter<'_>) {
        let mut role = out.begin_doc();
        doc_fields!(role; "role": self.name.as_str(), "db": self.db.as_str());
    }
}

/// Returns the names as messages list them.
pub(crate) fn list<'n>(names: impl IntoIterator<Item = &'n Name>) -> String {
    let texts: Vec<String> = names.into_iter().map(Name::to_string).collect();
    texts.join(", ")
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.is_empty() && self.db.is_empty() {
            true => Ok(()),
            false => write!(f, "{}@{}", self.name, self.db),
        }
    }
}

#[cfg(test)]
mod tests {
    use marula_bson::{DocBuf, doc};

    use super::*;

    fn check(of: Of, name: DocBuf, expected: std::result::Result<&str, &str>) {
        let value = name.as_doc().get("n").unwrap();
        let outcome = Name::parse(of, value, "here");
        let text = outcome.map(|name| name.to_string()).map_err(|error| error.message().to_owned());
        assert_eq!(text.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn names_are_strings_or_documents() {
        check(Of::User, doc! { "n": "a" }, Ok("a@here"));
        check(Of::User, doc! { "n": { "user": "a", "db": "there" } }, Ok("a@there"));
        check(Of::Role, doc! { "n": { "db": "there", "role": "a", "x": 1 } }, Ok("a@there"));
        check(Of::Role, doc! { "n": { "role": "", "db": "" } }, Ok(""));
        check(Of::User, doc! { "n": 5 }, Err("UserName must be either a string or an object"));
        check(Of::Role, doc! { "n": {} }, Err("RoleName must contain a field named: role"));
        check(
            Of::Role,
            doc! { "n": { "role": "a", "db": 5 } },
            Err("RoleName must contain a string field named: db. But, has type int"),
        );
        check(
            Of::User,
            doc! { "n": { "user": "a", "db": "b", "x": 1 } },
            Err("UserName contains an unknown field named: 'x"),
        );
    }

    #[test]
    fn a_list_of_roles_has_each_once() {
        let roles = doc! { "r": ["a", { "role": "b", "db": "d" }, { "role": "a", "db": "here" }] };
        let roles = roles.as_doc().get("r").and_then(|roles| roles.as_array()).unwrap();
        let names = Name::parse_roles(roles, "here").unwrap();
        assert_eq!(list(&names), "a@here, b@d");
        let wrong = doc! { "r": [5] };
        let wrong = wrong.as_doc().get("r").and_then(|roles| roles.as_array()).unwrap();
        assert_eq!(Name::parse_roles(wrong, "x").unwrap_err().message(), not_a_role().message());
    }
}
