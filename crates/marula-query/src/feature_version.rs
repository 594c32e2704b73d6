//! The feature compatibility version, which selects the release of the query language.
//!
//! Features introduced after 6.0 name their release in the row's `since` field and are rejected
//! until the version in the [`Context`](crate::context::Context) reaches it. A name is then
//! unknown, with the same error as any unknown name, as it was in that release. Source: manual
//! "setFeatureCompatibilityVersion"; release notes of 7.0 and 8.0.

/// The selectable releases, ordered by age.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
#[repr(u8)]
pub enum FeatureVersion {
    /// 6.0, the version of a new data folder.
    #[default]
    V6_0,
    /// 7.0, with the features of 6.1 to 6.3.
    V7_0,
    /// 8.0, with the features of 7.1 to 7.3.
    V8_0,
}

impl FeatureVersion {
    /// All versions, oldest first.
    pub const ALL: [FeatureVersion; 3] =
        [FeatureVersion::V6_0, FeatureVersion::V7_0, FeatureVersion::V8_0];
    /// The newest version: data stored under any version can be read under it.
    pub const NEWEST: FeatureVersion = FeatureVersion::V8_0;

    /// The name in commands and `admin.system.version`.
    pub fn name(self) -> &'static str {
        match self {
            FeatureVersion::V6_0 => "6.0",
            FeatureVersion::V7_0 => "7.0",
            FeatureVersion::V8_0 => "8.0",
        }
    }

    /// The version with this name.
    pub fn from_name(name: &[u8]) -> Option<FeatureVersion> {
        FeatureVersion::ALL.into_iter().find(|version| version.name().as_bytes() == name)
    }

    /// The number before the dot.
    pub fn major(self) -> i32 {
        match self {
            FeatureVersion::V6_0 => 6,
            FeatureVersion::V7_0 => 7,
            FeatureVersion::V8_0 => 8,
        }
    }

    /// The version as one byte, for an atomic.
    pub fn to_byte(self) -> u8 {
        self as u8
    }

    /// The version of this byte.
    pub fn from_byte(byte: u8) -> Option<FeatureVersion> {
        FeatureVersion::ALL.into_iter().find(|version| version.to_byte() == byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_bytes_lead_back() {
        for version in FeatureVersion::ALL {
            assert_eq!(FeatureVersion::from_name(version.name().as_bytes()), Some(version));
            assert_eq!(FeatureVersion::from_byte(version.to_byte()), Some(version));
            assert!(version <= FeatureVersion::NEWEST);
        }
        for name in ["", "5.0", "6", "8.0 ", "08.0", "8.1"] {
            assert_eq!(FeatureVersion::from_name(name.as_bytes()), None, "{name}");
        }
        assert_eq!(FeatureVersion::from_byte(3), None);
        assert!(FeatureVersion::ALL.is_sorted());
    }
}
