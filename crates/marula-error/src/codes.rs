//! MongoDB's error codes: number, `codeName`, and the categories that the driver specifications
//! name.
//!
//! Source: the manual's "Error Codes" page, the recorded replies of a real server, and the driver
//! specifications "Retryable Writes" and "Server Discovery and Monitoring" for the categories.

use std::borrow::Cow;
use std::fmt;

/// An error number. Its name is in the table below; a number without one is named `Location<n>`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(i32);

macro_rules! codes {
    ($($number:literal $name:ident;)*) => {
        $(
            #[allow(non_upper_case_globals, missing_docs)]
            pub const $name: Code = Code($number);
        )*

        /// Every named code, by number.
        pub const CODES: &[(i32, &str)] = &[$(($number, stringify!($name)),)*];
    };
}

codes! {
    1 InternalError;
    2 BadValue;
    4 NoSuchKey;
    5 GraphContainsCycle;
    6 HostUnreachable;
    7 HostNotFound;
    8 UnknownError;
    9 FailedToParse;
    10 CannotMutateObject;
    11 UserNotFound;
    12 UnsupportedFormat;
    13 Unauthorized;
    14 TypeMismatch;
    15 Overflow;
    16 InvalidLength;
    17 ProtocolError;
    18 AuthenticationFailed;
    20 IllegalOperation;
    22 InvalidBSON;
    23 AlreadyInitialized;
    24 LockTimeout;
    26 NamespaceNotFound;
    27 IndexNotFound;
    28 PathNotViable;
    31 RoleNotFound;
    34 CannotBackfillArray;
    37 FileRenameFailed;
    39 FileOpenFailed;
    40 ConflictingUpdateOperators;
    43 CursorNotFound;
    46 LockBusy;
    47 NoMatchingDocument;
    48 NamespaceExists;
    49 InvalidRoleModification;
    50 MaxTimeMSExpired;
    52 DollarPrefixedFieldName;
    53 InvalidIdField;
    54 NotSingleValueField;
    55 InvalidDBRef;
    56 EmptyFieldName;
    57 DottedFieldName;
    59 CommandNotFound;
    61 ShardKeyNotFound;
    63 StaleShardVersion;
    64 WriteConcernTimeout;
    65 MultipleErrorsOccurred;
    66 ImmutableField;
    67 CannotCreateIndex;
    68 IndexAlreadyExists;
    70 ShardNotFound;
    72 InvalidOptions;
    73 InvalidNamespace;
    74 NodeNotFound;
    76 NoReplicationEnabled;
    79 UnknownReplWriteConcern;
    85 IndexOptionsConflict;
    86 IndexKeySpecsConflict;
    89 NetworkTimeout;
    91 ShutdownInProgress;
    93 InvalidReplicaSetConfig;
    94 NotYetInitialized;
    95 NotSecondary;
    96 OperationFailed;
    97 NoProjectionFound;
    98 DBPathInUse;
    100 UnsatisfiableWriteConcern;
    103 NewReplicaSetConfigurationIncompatible;
    107 LockFailed;
    111 NotExactValueField;
    112 WriteConflict;
    115 CommandNotSupported;
    116 DocTooLargeForCapped;
    117 ConflictingOperationInProgress;
    118 NamespaceNotSharded;
    121 DocumentValidationFailure;
    123 NotAReplicaSet;
    125 CommandFailed;
    133 FailedToSatisfyReadPreference;
    134 ReadConcernMajorityNotAvailableYet;
    136 CappedPositionLost;
    139 JSInterpreterFailure;
    140 InvalidSSLConfiguration;
    143 CursorInUse;
    146 ExceededMemoryLimit;
    159 DurationOverflow;
    160 MaxStalenessOutOfRange;
    161 IncompatibleCollationVersion;
    162 CollectionIsEmpty;
    165 ViewDepthLimitExceeded;
    166 CommandNotSupportedOnView;
    167 OptionNotSupportedOnView;
    168 InvalidPipelineOperator;
    171 CannotIndexParallelArrays;
    175 QueryPlanKilled;
    181 AmbiguousIndexKeyPattern;
    182 InvalidViewDefinition;
    183 ClientMetadataMissingField;
    184 ClientMetadataAppNameTooLarge;
    185 ClientMetadataDocumentTooLarge;
    186 ClientMetadataCannotBeMutated;
    189 PrimarySteppedDown;
    193 NoShardingEnabled;
    195 ViewPipelineMaxSizeExceeded;
    197 InvalidIndexSpecificationOption;
    201 CannotBuildIndexKeys;
    202 NetworkInterfaceExceededTimeLimit;
    206 NoSuchSession;
    207 InvalidUUID;
    211 KeyNotFound;
    217 IncompleteTransactionHistory;
    218 UpdateOperationFailed;
    224 QueryFeatureNotAllowed;
    225 TransactionTooOld;
    232 MaxSubPipelineDepthExceeded;
    237 CursorKilled;
    238 NotImplemented;
    239 SnapshotTooOld;
    241 ConversionFailure;
    244 TransactionAborted;
    246 SnapshotUnavailable;
    251 NoSuchTransaction;
    256 TransactionCommitted;
    257 TransactionTooLarge;
    260 InvalidResumeToken;
    261 TooManyLogicalSessions;
    262 ExceededTimeLimit;
    263 OperationNotSupportedInTransaction;
    266 FailPointSetFailed;
    276 IndexBuildAborted;
    278 UnsatisfiableCommitQuorum;
    280 ChangeStreamFatalError;
    285 IndexBuildAlreadyInProgress;
    286 ChangeStreamHistoryLost;
    290 TransactionExceededLifetimeLimitSeconds;
    291 NoQueryExecutionPlans;
    292 QueryExceededMemoryLimitNoDiskUseAllowed;
    322 APIVersionError;
    323 APIStrictError;
    324 APIDeprecationError;
    334 MechanismUnavailable;
    347 APIMismatchError;
    352 UnsupportedOpQueryCommand;
    354 LoadBalancerSupportMismatch;
    359 CannotConvertIndexToUnique;
    361 CollectionUUIDMismatch;
    371 UserWritesBlocked;
    391 ReauthenticationRequired;
    462 IngressRequestRateLimitExceeded;
    9001 SocketException;
    10003 CannotGrowDocumentInCappedNamespace;
    10058 LegacyNotPrimary;
    10107 NotWritablePrimary;
    10334 BSONObjectTooLarge;
    11000 DuplicateKey;
    11600 InterruptedAtShutdown;
    11601 Interrupted;
    11602 InterruptedDueToReplStateChange;
    12586 BackgroundOperationInProgressForDatabase;
    12587 BackgroundOperationInProgressForNamespace;
    13113 MergeStageNoMatchingDocument;
    13297 DatabaseDifferCase;
    13388 StaleConfig;
    13435 NotPrimaryNoSecondaryOk;
    13436 NotPrimaryOrSecondary;
    14031 OutOfDiskSpace;
    17280 KeyTooLong;
    31082 SearchNotEnabled;
    40413 IDLDuplicateField;
    40414 IDLFailedToParse;
    40415 IDLUnknownField;
    50768 NotARetryableWriteCommand;
}

impl Code {
    /// The code with this number, named or not.
    pub const fn from_number(number: i32) -> Self {
        Code(number)
    }

    /// The number, as a reply's `code` shows it.
    pub const fn number(self) -> i32 {
        self.0
    }

    /// The name, as a reply's `codeName` shows it.
    pub fn name(self) -> Cow<'static, str> {
        match CODES.binary_search_by_key(&self.0, |row| row.0) {
            Ok(index) => Cow::Borrowed(CODES[index].1),
            Err(_) => Cow::Owned(format!("Location{}", self.0)),
        }
    }

    /// Returns whether this is the code of an operation that was ended from outside: the whole
    /// command fails with it, without a prefix, and not a statement of it.
    pub fn is_interruption(self) -> bool {
        [
            Interrupted,
            InterruptedAtShutdown,
            InterruptedDueToReplStateChange,
            MaxTimeMSExpired,
            CursorKilled,
            ShutdownInProgress,
        ]
        .contains(&self)
    }
}

impl From<i32> for Code {
    fn from(number: i32) -> Self {
        Code(number)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_by_number_and_names_are_unique() {
        assert!(CODES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let mut names: Vec<_> = CODES.iter().map(|row| row.1).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CODES.len());
    }

    #[test]
    fn a_number_without_a_name_is_a_location() {
        assert_eq!(Code::from(40324).name(), "Location40324");
        assert_eq!(CursorNotFound.name(), "CursorNotFound");
    }
}
