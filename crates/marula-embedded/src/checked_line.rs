//! A line with a checksum, in a file of its own that is overwritten in place.
//!
//! ```text
//! <folder>/<NAME>   "<word> <text> 7f3a9c01\n": the text, its CRC-32C
//! ```
//!
//! It is not synced, so it is exact after a crash of the process; after a power failure it may be
//! some seconds old.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use tracing::warn;

/// The kind of a line.
pub(crate) struct CheckedLine {
    /// The name of its file.
    pub(crate) name: &'static str,
    /// The word that it begins with.
    pub(crate) word: &'static str,
    /// Unknown without the line, for messages: "how far the log was synced".
    pub(crate) tells: &'static str,
}

impl CheckedLine {
    /// Opens or creates the file of a folder, to write it.
    pub(crate) fn open(&self, folder: &Path) -> io::Result<File> {
        let mut options = File::options();
        options.write(true).create(true).truncate(false).open(folder.join(self.name))
    }

    /// Writes the line; returns its size. Bytes of the file after it stay.
    pub(crate) fn write(&self, file: &File, text: &str) -> io::Result<u64> {
        let line = self.of(text);
        file.write_all_at(line.as_bytes(), 0)?;
        Ok(line.len() as u64)
    }

    /// Returns the text of a folder, as `parse` reads it; `None` when there is no line.
    ///
    /// Errors: the fault, which has been logged: the file cannot be read, or its checksum is wrong.
    pub(crate) fn read<T>(
        &self,
        folder: &Path,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let path = folder.join(self.name);
        let cause = match fs::read(&path) {
            Ok(line) if line.is_empty() => return Ok(None),
            Ok(line) => match self.text_of(&line).and_then(parse) {
                Some(found) => return Ok(Some(found)),
                None => "its checksum is wrong".to_owned(),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => error.to_string(),
        };
        warn!(
            path = %path.display(),
            error = cause,
            "a file cannot be read, so it is not known {}",
            self.tells
        );
        Err(format!("'{}' cannot be read: {cause}", path.display()))
    }

    fn of(&self, text: &str) -> String {
        format!("{} {text} {:08x}\n", self.word, crc32c::crc32c(text.as_bytes()))
    }

    fn text_of<'l>(&self, line: &'l [u8]) -> Option<&'l str> {
        let line = std::str::from_utf8(line).ok()?;
        let text = line.strip_prefix(self.word)?.strip_prefix(' ')?.rsplit_once(' ')?.0;
        (self.of(text) == line).then_some(text)
    }
}
