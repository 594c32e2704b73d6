//! Configuration files: mongod.conf, a YAML document of nested options.

use std::fs;
use std::path::Path;

use serde_norway::Value;

use crate::Failure;
use crate::settings::Settings;

/// Reads the file at `path` into `settings`.
pub(crate) fn read(path: &Path, settings: &mut Settings) -> Result<(), Failure> {
    let shown = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| format!("cannot read configuration file '{shown}': {error}"))?;
    let document: Value = serde_norway::from_str(&text)
        .map_err(|error| format!("configuration file '{shown}' is not YAML: {error}"))?;
    apply("", &document, settings)
        .map_err(|failure| format!("configuration file '{shown}': {failure}"))
}

/// Sets what stands under `name`, section by section.
fn apply(name: &str, value: &Value, settings: &mut Settings) -> Result<(), Failure> {
    match value {
        Value::Null => Ok(()),
        Value::Bool(flag) => settings.set(name, &flag.to_string()),
        Value::Number(number) => settings.set(name, &number.to_string()),
        Value::String(text) => settings.set(name, text),
        Value::Mapping(section) => {
            for (key, value) in section {
                let Value::String(key) = key else {
                    return Err(format!("section '{name}' has a name that is not text"));
                };
                let inner = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                apply(&inner, value, settings)?;
            }
            Ok(())
        }
        // A list of addresses or compressors may be written as a list too.
        Value::Sequence(items) => {
            let texts: Option<Vec<_>> = items.iter().map(|item| item.as_str()).collect();
            let texts =
                texts.ok_or_else(|| format!("option '{name}' is a list of other than texts"))?;
            settings.set(name, &texts.join(","))
        }
        Value::Tagged(_) => Err(format!("option '{name}' has a YAML tag, which is not supported")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Settings, Failure> {
        let mut settings = Settings::default();
        let document = serde_norway::from_str(text).map_err(|error| error.to_string())?;
        apply("", &document, &mut settings)?;
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
        assert!(check("a: [").is_err());
        check("").unwrap();
    }
}
