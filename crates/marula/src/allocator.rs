//! The allocator of the whole process, RocksDB included.
//!
//! glibc's keeps what many threads have freed and takes a lock where they meet; replies, requests and documents are
//! allocated on one thread and often freed on another.

use std::ffi::c_long;

use libmimalloc_sys::{mi_option_set, mi_option_t};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long freed memory is kept before it goes back to the system. After the default second each large reply of a
/// client that asks now and then would be written to pages that the kernel has to clear first.
const PURGE_DELAY: (mi_option_t, c_long) = (15, 10_000);

/// 2: memory goes back in whole large pages only. Smaller pieces would break them up, and the cache of blocks lies in
/// them: a look-up there waits for the tables that lead to its page, too.
const ALLOW_THP: (mi_option_t, c_long) = (43, 2);

/// Sets what differs from mimalloc's defaults. Variables of the environment (`MIMALLOC_PURGE_DELAY`) have no say then.
#[allow(unsafe_code)]
pub(crate) fn configure() {
    for (option, value) in [PURGE_DELAY, ALLOW_THP] {
        // SAFETY: an option is a number that mimalloc reads when it needs it; an unknown one is passed over.
        unsafe { mi_option_set(option, value) };
    }
}

#[cfg(test)]
mod tests {
    use libmimalloc_sys::mi_option_get;

    use super::*;

    /// Rust's binding does not name these options: their numbers are those of mimalloc 3, where these are the defaults.
    #[test]
    #[allow(unsafe_code)]
    fn the_options_have_the_numbers_they_are_set_by() {
        for (option, default) in [(PURGE_DELAY, 1_000), (ALLOW_THP, 1)] {
            // SAFETY: as above; reading changes nothing.
            let get = || unsafe { mi_option_get(option.0) };
            assert_eq!(get(), default, "option {}", option.0);
        }
        configure();
        for (option, value) in [PURGE_DELAY, ALLOW_THP] {
            // SAFETY: as above.
            assert_eq!(unsafe { mi_option_get(option) }, value, "option {option}");
        }
    }
}
