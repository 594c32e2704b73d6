//! Base64 with padding (RFC 4648, section 4), as extended JSON and MongoDB's shell read and write
//! it.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

/// Surplus bits of the last symbol may be set: MongoDB's shell accepts such text too.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Appends `bytes` in base64 to `out`.
pub fn encode(bytes: &[u8], out: &mut String) {
    ENGINE.encode_string(bytes, out);
}

/// Decodes base64; `None` when the text is invalid.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    ENGINE.decode(text).ok()
}
