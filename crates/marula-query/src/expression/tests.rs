//! Expressions against answers recorded from mongod.
