//! Configuration files: mongod.conf, a YAML document of nested options.

use std::fs;
use std::path::Path;

use yaml_serde::Value;

use crate::Failure;
use crate::settings::Settings;

/// Reads the file at `path` into `settings`.
pub(crate) fn read(path: &Path, settings: &mut Settings) -> Result<(), Failure> {
    let set = |(name, value): (String, String)| settings.set(&name, &value);
    options(path)?
        .into_iter()
        .try_for_each(set)
        .map_err(|failure| format!("configuration file '{}': {failure}", path.display()))
}

/// The options of the file at `path`: dotted names and values as text.
pub(crate) fn options(path: &Path) -> Result<Vec<(String, String)>, Failure> {
    let shown = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| format!("cannot read configuration file '{shown}': {error}"))?;
    let document: Value = yaml_serde::from_str(&text)
        .map_err(|error| format!("configuration file '{shown}' is not YAML: {error}"))?;
    let mut found = Vec::new();
    collect("", &document, &mut found)
        .map_err(|failure| format!("configuration file '{shown}': {failure}"))?;
    Ok(found)
}

/// Gathers what stands under `name`, section by section.
fn collect(name: &str, value: &Value, found: &mut Vec<(String, String)>) -> Result<(), Failure> {
    let text = match value {
        // A section whose options are all commented out.
        Value::Null if !name.contains('.') => return Ok(()),
        Value::Null => return Err(format!("option '{name}' has no value")),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Mapping(section) => {
            for (key, value) in section {
                let Value::String(key) = key else {
                    return Err(format!("section '{name}' has a name that is not text"));
                };
                let inner = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                collect(&inner, value, found)?;
            }
            return Ok(());
        }
        // A list of addresses or compressors may be written as a list too.
        Value::Sequence(items) => {
            let texts: Option<Vec<_>> = items.iter().map(|item| item.as_str()).collect();
            let texts =
                texts.ok_or_else(|| format!("option '{name}' is a list of other than texts"))?;
            texts.join(",")
        }
        Value::Tagged(_) => {
            return Err(format!("option '{name}' has a YAML tag, which is not supported"));
        }
    };
    found.push((name.to_owned(), text));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Settings, Failure> {
        let mut settings = Settings::default();
        let document = yaml_serde::from_str(text).map_err(|error| error.to_string())?;
        let mut options = Vec::new();
        collect("", &document, &mut options)?;
        options.iter().try_for_each(|(name, value)| settings.set(name, value))?;
        Ok(settings)
    }

    #[test]
    fn a_mongod_conf_is_understood() {
        let text = "storage:\n  dbPath: /x\n  journal:\n    enabled: true\nnet:\n  port: 27018\n  bindIp: 127.0.0.1\nreplication:\n  replSetName: rs0\nsystemLog:\n  destination: file\n  logAppend: true\n  path: /x/log\nprocessManagement:\n  fork: false\nsetParameter:\n  cursorTimeoutMillis: 5\n";
        let settings = check(text).unwrap();
        assert_eq!(settings.port, 27_018);
        assert!(settings.has_javascript);
        for (value, expected) in [("true", true), ("false", false)] {
            let settings = check(&format!("security:\n  javascriptEnabled: {value}\n")).unwrap();
            assert_eq!(settings.has_javascript, expected);
        }
        assert_eq!(settings.repl_set.as_deref(), Some("rs0"));
        assert_eq!(settings.parameters, [("cursorTimeoutMillis".to_owned(), "5".to_owned())]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(check("security:\n  javascriptEnabled: perhaps\n").is_err());
        assert!(check("storage:\n  nope: 1\n").unwrap_err().contains("storage.nope"));
        assert_eq!(
            check("security:\n  authorization:\n").unwrap_err(),
            "option 'security.authorization' has no value"
        );
        check("security:\n").unwrap();
        check("").unwrap();
        check("---\n~\n").unwrap();
    }

    /// The accepted YAML, and the errors, do not change when the library does.
    #[test]
    fn the_same_files_are_refused_in_the_same_words() {
        for (text, words) in [
            (
                "a: [",
                "did not find expected node content at line 2 column 1, while parsing a flow node",
            ),
            ("a: b: c", "mapping values are not allowed in this context at line 1 column 5"),
            (
                "\ta: 1",
                "found character that cannot start any token, while scanning for the next token",
            ),
            ("a: 1\na: 2", "duplicate entry with key \"a\""),
            (
                "a: 1\n---\nb: 1",
                "deserializing from YAML containing more than one document is not supported",
            ),
            ("a: *b", "unknown anchor at line 1 column 4"),
            ("net: !x\n  port: 1", "option 'net' has a YAML tag, which is not supported"),
            ("1: 2", "section '' has a name that is not text"),
            ("net: [[1]]", "option 'net' is a list of other than texts"),
        ] {
            assert_eq!(check(text).unwrap_err(), words, "{text}");
        }
        for text in [
            "net: {port: 27018}",
            "net:\n  port: \"27018\"  # quoted",
            "%YAML 1.2\n---\nnet: {port: 0x698A}",
            "net: &shared {port: 27018}\nsecurity: {javascriptEnabled: true}\n...\n",
        ] {
            assert_eq!(check(text).map(|settings| settings.port), Ok(27_018), "{text}");
        }
    }
}
