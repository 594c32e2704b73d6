//! MongoDB's error codes and the one error type that a client sees.
//!
//! An [`Error`] holds exactly the fields of an error reply: `code`, `codeName`, `errmsg`,
//! `errorLabels` and the fields that some errors add (`keyPattern`, `keyValue`, `errInfo`). Modules
//! raise errors through rows of the [`errors!`] macro, so that the failures of a module read as a
//! table.
//!
//! This crate depends on no other crate of Marula. Start with [`codes`].

pub mod codes;
mod error;

pub use codes::Code;
pub use error::{Error, Result};

/// Declares the errors that a module raises, one function per row.
///
/// ```
/// marula_error::errors! {
///     /// A pipeline names a stage that does not exist.
///     unknown_stage(name: &str) = 40324, "Unrecognized pipeline stage name: '{name}'";
///     /// A getMore names a cursor that was closed or timed out.
///     cursor_not_found(id: i64) = CursorNotFound, "cursor id {id} not found";
/// }
/// assert_eq!(unknown_stage("$nope").code().number(), 40324);
/// ```
///
/// A row is private to its module unless it starts with `pub` or `pub(crate)`.
#[macro_export]
macro_rules! errors {
    ($( $(#[$meta:meta])* $vis:vis $name:ident ( $($arg:ident : $ty:ty),* $(,)? ) = $code:expr, $text:literal ; )*) => {
        $(
            $(#[$meta])*
            #[cold]
            $vis fn $name($($arg: $ty),*) -> $crate::Error {
                #[allow(unused_imports)]
                use $crate::codes::*;
                $crate::Error::new($code, format!($text))
            }
        )*
    };
}
