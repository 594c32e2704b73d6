//! Tokyo Cabinet's table database, through its C library (Debian: `libtokyocabinet9`), found when a
//! run asks for it.
//!
//! The library is LGPL and is neither linked nor shipped. A table maps a key to columns of text: a
//! document's fields become columns, numbers in decimal and an array of strings as words with
//! spaces between. Indexes are the library's own: lexical, decimal, and of tokens for arrays.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::rc::Rc;

use libloading::Library;

use crate::bson;
use crate::operation::{Collection, FieldKind, Index};
use crate::wire::Admin;

const LIBRARY: &str = "libtokyocabinet.so.9";

/// Buckets of the hash, as its manual advises: a few times the records that will come.
const BUCKETS: i64 = 1 << 22;
/// Bytes of the file that are mapped into memory.
const MAPPED_BYTES: i64 = 1 << 29;

/// How the tables are made, for the report.
pub(crate) const SETTING: &str =
    "embedded, one caller; 4 Mi buckets, 512 MB mapped, transactions not synchronised";

// The library's own numbers.
const OPEN_WRITER: c_int = 1 << 1;
const OPEN_CREATE: c_int = 1 << 2;
const OPEN_TRUNCATE: c_int = 1 << 3;
const TUNE_LARGE: u8 = 1;
const TUNE_DEFAULT: i8 = -1;
const INDEX_LEXICAL: c_int = 0;
const INDEX_DECIMAL: c_int = 1;
const INDEX_TOKEN: c_int = 2;

/// Declares the functions of the library that are used, and how they are looked up.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            version: CString,
            /// Last, so that the functions end before it.
            _library: Library,
        }

        impl Functions {
            fn load() -> Result<Functions, String> {
                let missing = |error: libloading::Error| {
                    format!("{LIBRARY} is missing (Debian: apt-get install libtokyocabinet9): {error}")
                };
                // SAFETY: the library's start-up code is that of Debian's package: it registers
                // nothing and calls nothing back. The signatures below are those of its public
                // header tctdb.h and tcutil.h, version 1.4.48, which the name of the file (.so.9)
                // fixes; the functions live as long as `_library`.
                unsafe {
                    let library = Library::new(LIBRARY).map_err(missing)?;
                    let version = **library.get::<*const *const c_char>(b"tcversion\0").map_err(missing)?;
                    Ok(Functions {
                        $($name: *library.get(concat!(stringify!($name), "\0").as_bytes()).map_err(missing)?,)*
                        version: CStr::from_ptr(version).to_owned(),
                        _library: library,
                    })
                }
            }
        }
    };
}

functions! {
    tctdbnew: fn() -> *mut c_void;
    tctdbdel: fn(*mut c_void);
    tctdbtune: fn(*mut c_void, i64, i8, i8, u8) -> bool;
    tctdbsetxmsiz: fn(*mut c_void, i64) -> bool;
    tctdbopen: fn(*mut c_void, *const c_char, c_int) -> bool;
    tctdbsetindex: fn(*mut c_void, *const c_char, c_int) -> bool;
    tctdbput: fn(*mut c_void, *const c_void, c_int, *mut c_void) -> bool;
    tctdbget: fn(*mut c_void, *const c_void, c_int) -> *mut c_void;
    tctdbsync: fn(*mut c_void) -> bool;
    tctdboptimize: fn(*mut c_void, i64, i8, i8, u8) -> bool;
    tctdbecode: fn(*mut c_void) -> c_int;
    tctdberrmsg: fn(c_int) -> *const c_char;
    tcmapnew: fn() -> *mut c_void;
    tcmapdel: fn(*mut c_void);
    tcmapput: fn(*mut c_void, *const c_void, c_int, *const c_void, c_int);
    tcmapget: fn(*const c_void, *const c_void, c_int, *mut c_int) -> *const c_void;
    tcmaprnum: fn(*const c_void) -> u64;
}

/// The library, and the table that is open in a folder of its own.
pub(crate) struct TokyoCabinet {
    functions: Rc<Functions>,
    folder: PathBuf,
    table: Option<Table>,
}

impl TokyoCabinet {
    /// Loads the library; its tables will be in `folder`, which ends with the value.
    pub(crate) fn load(folder: PathBuf) -> Result<TokyoCabinet, String> {
        let functions = Rc::new(Functions::load()?);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(TokyoCabinet { functions, folder, table: None })
    }

    /// The table that was made last.
    pub(super) fn table(&mut self) -> Result<&mut Table, String> {
        self.table.as_mut().ok_or_else(|| "no table was made".into())
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn file(&self, collection: &Collection) -> PathBuf {
        self.folder.join(format!("{}.tct", collection.name))
    }
}

impl Drop for TokyoCabinet {
    fn drop(&mut self) {
        self.table = None;
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// An open table.
pub(super) struct Table {
    functions: Rc<Functions>,
    handle: NonNull<c_void>,
}

impl Table {
    fn create(functions: &Rc<Functions>, path: &Path) -> Result<Table, String> {
        let path =
            CString::new(path.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: a table is made, tuned before it is opened, and given a path that ends with a
        // NUL.
        unsafe {
            let handle = NonNull::new((functions.tctdbnew)()).ok_or("no memory for a table")?;
            let table = Table { functions: Rc::clone(functions), handle };
            let is_open = (functions.tctdbtune)(
                handle.as_ptr(),
                BUCKETS,
                TUNE_DEFAULT,
                TUNE_DEFAULT,
                TUNE_LARGE,
            ) && (functions.tctdbsetxmsiz)(handle.as_ptr(), MAPPED_BYTES)
                && (functions.tctdbopen)(
                    handle.as_ptr(),
                    path.as_ptr(),
                    OPEN_WRITER | OPEN_CREATE | OPEN_TRUNCATE,
                );
            table.succeeded(is_open, "open the table")?;
            Ok(table)
        }
    }

    fn index(&mut self, name: &str, kind: c_int) -> Result<(), String> {
        let column = CString::new(name).map_err(|error| error.to_string())?;
        // SAFETY: the table is open and the name ends with a NUL.
        let done =
            unsafe { (self.functions.tctdbsetindex)(self.handle.as_ptr(), column.as_ptr(), kind) };
        self.succeeded(done, "build an index")
    }

    /// Stores a record.
    pub(super) fn put(&mut self, key: &str, columns: &[(String, String)]) -> Result<(), String> {
        let mut map = Columns::new(&self.functions)?;
        for (name, value) in columns {
            map.set(name, value);
        }
        self.put_columns(key, &map)
    }

    /// Stores a record whose columns are in a map already.
    pub(super) fn put_columns(&mut self, key: &str, columns: &Columns) -> Result<(), String> {
        // SAFETY: the table is open, the map lives, and the key is as long as is said.
        let done = unsafe {
            let (start, size) = parts(key);
            (self.functions.tctdbput)(self.handle.as_ptr(), start, size, columns.map.as_ptr())
        };
        self.succeeded(done, "store a record")
    }

    /// The columns of a record.
    pub(super) fn get(&mut self, key: &str) -> Option<Columns> {
        // SAFETY: the table is open and the key is as long as is said; the map that comes is ours
        // to end.
        let map = unsafe {
            let (start, size) = parts(key);
            (self.functions.tctdbget)(self.handle.as_ptr(), start, size)
        };
        NonNull::new(map).map(|map| Columns { functions: Rc::clone(&self.functions), map })
    }

    fn sync(&mut self) -> Result<(), String> {
        // SAFETY: the table is open.
        let done = unsafe { (self.functions.tctdbsync)(self.handle.as_ptr()) };
        self.succeeded(done, "write to the disk")
    }

    fn optimize(&mut self) -> Result<(), String> {
        // SAFETY: the table is open; the arguments ask for what it has.
        let done = unsafe {
            (self.functions.tctdboptimize)(
                self.handle.as_ptr(),
                BUCKETS,
                TUNE_DEFAULT,
                TUNE_DEFAULT,
                TUNE_LARGE,
            )
        };
        self.succeeded(done, "compact the table")
    }

    fn succeeded(&self, done: bool, what: &str) -> Result<(), String> {
        if done {
            return Ok(());
        }
        // SAFETY: the table lives; the message is a constant of the library.
        let text = unsafe {
            let code = (self.functions.tctdbecode)(self.handle.as_ptr());
            CStr::from_ptr((self.functions.tctdberrmsg)(code)).to_string_lossy().into_owned()
        };
        Err(format!("Tokyo Cabinet could not {what}: {text}"))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and is not used again; an open table is closed with it.
        unsafe { (self.functions.tctdbdel)(self.handle.as_ptr()) }
    }
}

/// The columns of one record: the library's own map.
pub(super) struct Columns {
    functions: Rc<Functions>,
    map: NonNull<c_void>,
}

impl Columns {
    fn new(functions: &Rc<Functions>) -> Result<Columns, String> {
        // SAFETY: a new map, which is ours to end.
        let map =
            NonNull::new(unsafe { (functions.tcmapnew)() }).ok_or("no memory for a record")?;
        Ok(Columns { functions: Rc::clone(functions), map })
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        let ((name, name_size), (value, value_size)) = (parts(name), parts(value));
        // SAFETY: the map lives; name and value are as long as is said and are copied.
        unsafe { (self.functions.tcmapput)(self.map.as_ptr(), name, name_size, value, value_size) }
    }

    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        let (start, size) = parts(name);
        let mut found_size = 0;
        // SAFETY: the map lives and is not changed while the value is borrowed; the value is as
        // long as is said.
        unsafe {
            let found = (self.functions.tcmapget)(self.map.as_ptr(), start, size, &mut found_size);
            let found = NonNull::new(found.cast_mut().cast::<u8>())?;
            Some(std::slice::from_raw_parts(found.as_ptr(), usize::try_from(found_size).ok()?))
        }
    }

    pub(super) fn len(&self) -> usize {
        // SAFETY: the map lives.
        unsafe { (self.functions.tcmaprnum)(self.map.as_ptr()) as usize }
    }
}

impl Drop for Columns {
    fn drop(&mut self) {
        // SAFETY: the map is ours and is not used again.
        unsafe { (self.functions.tcmapdel)(self.map.as_ptr()) }
    }
}

fn parts(text: &str) -> (*const c_void, c_int) {
    let size = c_int::try_from(text.len()).expect("a field of a benchmark is short");
    (text.as_ptr().cast(), size)
}

/// The key and the columns that a document becomes.
pub(super) fn columns_of(document: &[u8]) -> Result<(String, Vec<(String, String)>), String> {
    let mut key = None;
    let mut columns = Vec::new();
    for field in bson::fields(document) {
        let name = String::from_utf8_lossy(field.name).into_owned();
        let value = match field.kind {
            4 => bson::fields(field.value).filter_map(text_of).collect::<Vec<_>>().join(" "),
            _ => text_of(field).ok_or_else(|| format!("the field {name} cannot be a column"))?,
        };
        if name == "_id" { key = Some(value) } else { columns.push((name, value)) }
    }
    Ok((key.ok_or("a document has no _id")?, columns))
}

fn text_of(field: bson::Field) -> Option<String> {
    match field.kind {
        2 => bson::string(field.value),
        0x10 => Some(i32::from_le_bytes(field.value.get(..4)?.try_into().ok()?).to_string()),
        9 | 0x12 => Some(i64::from_le_bytes(field.value.get(..8)?.try_into().ok()?).to_string()),
        _ => None,
    }
}

/// The administration of the tables.
pub(crate) struct TokyoAdmin(pub(crate) Rc<RefCell<TokyoCabinet>>);

impl Admin for TokyoAdmin {
    fn version(&mut self) -> Result<String, String> {
        let engine = self.0.borrow();
        Ok(format!("Tokyo Cabinet {} (embedded)", engine.functions.version.to_string_lossy()))
    }

    fn create(&mut self, collection: &Collection) -> Result<(), String> {
        let mut engine = self.0.borrow_mut();
        engine.table = None;
        for entry in fs::read_dir(&engine.folder).map_err(|error| error.to_string())?.flatten() {
            fs::remove_file(entry.path()).map_err(|error| error.to_string())?;
        }
        let path = engine.file(collection);
        engine.table = Some(Table::create(&engine.functions, &path)?);
        Ok(())
    }

    fn index(&mut self, _: &Collection, index: &Index) -> Result<(), String> {
        let ([field], false) = (index.fields, index.unique) else {
            return Err("a table of Tokyo Cabinet has indexes over one column, none unique".into());
        };
        let kind = match field.kind {
            FieldKind::Text => INDEX_LEXICAL,
            FieldKind::Number => INDEX_DECIMAL,
            FieldKind::Tags => INDEX_TOKEN,
        };
        self.0.borrow_mut().table()?.index(field.name, kind)
    }

    fn analyze(&mut self, _: &Collection) -> Result<(), String> {
        Ok(())
    }

    fn compact(&mut self, _: &Collection) -> Result<(), String> {
        self.0.borrow_mut().table()?.optimize()
    }

    fn flush(&mut self) -> Result<(), String> {
        self.0.borrow_mut().table()?.sync()
    }

    fn sizes(&mut self, collection: &Collection) -> Result<(u64, u64), String> {
        let engine = self.0.borrow();
        let size = |path: &Path| fs::metadata(path).map(|found| found.len()).unwrap_or(0);
        let data = size(&engine.file(collection));
        let entries = fs::read_dir(&engine.folder).map_err(|error| error.to_string())?;
        let all: u64 = entries.flatten().map(|entry| size(&entry.path())).sum();
        Ok((data, all - data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bson::Doc;

    #[test]
    fn a_document_becomes_columns_of_text() {
        let document = Doc::new()
            .long("_id", 7)
            .str("title", "a title")
            .int("views", -3)
            .strings("tags", &["red", "green"])
            .finish();
        let columns = [("title", "a title"), ("views", "-3"), ("tags", "red green")]
            .map(|(name, value)| (name.into(), value.into()));
        assert_eq!(columns_of(&document), Ok(("7".into(), columns.to_vec())));
        let check = |document: Doc, wanted: &str| {
            assert_eq!(columns_of(&document.finish()), Err(wanted.into()));
        };
        check(Doc::new().str("a", "b"), "a document has no _id");
        check(Doc::new().long("_id", 1).bool("on", true), "the field on cannot be a column");
    }
}
