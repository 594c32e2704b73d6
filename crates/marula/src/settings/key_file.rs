//! Key files: the secret by which mongod's members know each other. A node stands alone, so that
//! the key itself is not used; a file that mongod would refuse is refused.
//!
//! Source: manual "Keyfile Requirements"; bounds of mongod 6.0.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::Failure;

/// The shortest and the longest key, white space left out.
const BYTES: std::ops::RangeInclusive<usize> = 6..=1024;

/// Checks that the file holds a key that nobody else can read.
pub(super) fn check(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    let unreadable = |error| format!("cannot read key file '{shown}': {error}");
    let mode = fs::metadata(path).map_err(unreadable)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(format!("permissions on {shown} are too open"));
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    // A list of keys, so that they can be changed one by one, is one of YAML.
    let keys: Vec<&str> = match text.trim_start().starts_with("- ") {
        true => text.lines().filter_map(|line| line.trim().strip_prefix("- ")).collect(),
        false => vec![&text],
    };
    keys.into_iter().try_for_each(|key| check_key(&key.replace('"', ""), path))
}

fn check_key(text: &str, path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    let key: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    if !BYTES.contains(&key.len()) {
        let (least, most) = (BYTES.start(), BYTES.end());
        return Err(format!("key file '{shown}' must hold from {least} to {most} characters"));
    }
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    if !key.iter().all(is_base64) {
        return Err(format!("key file '{shown}' must hold base64"));
    }
    Ok(())
}
