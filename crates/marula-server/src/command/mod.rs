//! The commands: one row and one function each.
//!
//! Each file is one command. Its `COMMAND` row holds everything that the frame needs before the
//! command's own code runs (name, thread, privileges, fields); `run` reads the `Request`, writes
//! the fields of the reply and returns an [`Outcome`]. [`dispatch`](crate::dispatch) adds `ok`,
//! errors and write concern errors, and counts.
//!
//! To add a command, write `command/<name>.rs` with its row and `run`, and list it in [`COMMANDS`].

mod table;

mod aggregate;
mod append_oplog_note;
mod apply_ops;
mod backup;
mod build_info;
mod bulk_write;
mod capped;
mod check_sharding_index;
mod cluster_parameter;
mod coll_mod;
pub(crate) mod coll_stats;
mod compact;
mod compact_structured_encryption_data;
mod configure_fail_point;
mod connection_status;
mod count;
pub(crate) mod create;
mod create_indexes;
mod create_role;
mod create_user;
pub(crate) mod current_op;
mod data_size;
mod db_hash;
mod db_stats;
mod default_concerns;
pub(crate) mod delete;
mod distinct;
mod drop;
mod drop_database;
mod drop_indexes;
mod drop_role;
mod drop_user;
mod explain;
mod filemd5;
mod find;
mod find_and_modify;
mod fsync;
mod get_cmd_line_opts;
mod get_diagnostic_data;
mod get_log;
pub(crate) mod get_more;
mod get_parameter;
mod grant_to_user;
pub(crate) mod hello;
mod host_info;
mod index_builds;
mod insert;
mod kill_cursors;
mod list_collections;
mod list_commands;
mod list_databases;
mod list_indexes;
mod map_reduce;
mod merge_authz_collections;
mod ping;
mod plan_cache;
mod profile;
mod rename_collection;
mod replication;
mod resize_oplog;
mod roles_info;
mod rotate_certificates;
mod sasl;
mod search_indexes;
pub(crate) mod server_status;
pub(crate) mod sessions;
mod set_feature_compatibility_version;
mod set_user_write_block_mode;
mod shard_collection;
mod sharding;
mod shutdown;
mod small;
mod split_vector;
mod test_versions;
mod top;
mod transaction;
pub(crate) mod update;
mod update_role;
mod update_user;
mod users_info;
mod validate;
mod validate_db_metadata;

pub use build_info::GIT_VERSION;
pub(crate) use build_info::{COMPARED_WITH, compatible_version};
pub(crate) use sasl::MECHANISMS;
pub(crate) use table::find;

pub(crate) use crate::fields::{self, Field, Fields, Types};
pub(crate) use crate::row::{
    Auth, Command, CommandPlace, Kind, Named, OnSecondary, Outcome, ReadConcernLevels,
};

/// All commands, in the order of their names.
pub(crate) static COMMANDS: &[&Command] = &[
    &small::IS_SELF,
    &merge_authz_collections::COMMAND,
    &transaction::ABORT,
    &sharding::ADD_SHARD,
    &sharding::ADD_SHARD_TO_ZONE,
    &aggregate::COMMAND,
    &append_oplog_note::COMMAND,
    &apply_ops::COMMAND,
    &sasl::AUTHENTICATE,
    &small::AVAILABLE_QUERY_OPTIONS,
    &backup::CREATE,
    &backup::STATUS,
    &sharding::BALANCER_COLLECTION_STATUS,
    &sharding::BALANCER_START,
    &sharding::BALANCER_STATUS,
    &sharding::BALANCER_STOP,
    &build_info::COMMAND,
    &bulk_write::COMMAND,
    &check_sharding_index::COMMAND,
    &capped::CLONE,
    &coll_mod::COMMAND,
    &coll_stats::COMMAND,
    &transaction::COMMIT,
    &compact::COMMAND,
    &compact_structured_encryption_data::COMMAND,
    &configure_fail_point::COMMAND,
    &connection_status::STATUS,
    &small::CONN_POOL_STATS,
    &small::CONN_POOL_SYNC,
    &capped::CONVERT,
    &count::COMMAND,
    &create::COMMAND,
    &create_indexes::COMMAND,
    &create_role::COMMAND,
    &search_indexes::CREATE,
    &create_user::COMMAND,
    &current_op::CURRENT,
    &data_size::COMMAND,
    &db_hash::COMMAND,
    &db_stats::COMMAND,
    &delete::COMMAND,
    &distinct::COMMAND,
    &small::DRIVER_OID_TEST,
    &drop::COMMAND,
    &drop_role::ALL,
    &drop_user::ALL,
    &small::DROP_CONNECTIONS,
    &drop_database::COMMAND,
    &drop_indexes::COMMAND,
    &drop_role::ONE,
    &search_indexes::DROP,
    &drop_user::ONE,
    &sharding::ENABLE_SHARDING,
    &sessions::END,
    &explain::COMMAND,
    &small::FEATURES,
    &filemd5::COMMAND,
    &find::COMMAND,
    &find_and_modify::COMMAND,
    &fsync::LOCK,
    &fsync::UNLOCK,
    &cluster_parameter::GET,
    &get_cmd_line_opts::COMMAND,
    &default_concerns::GET,
    &get_diagnostic_data::COMMAND,
    &small::GET_LAST_ERROR,
    &get_log::COMMAND,
    &get_more::COMMAND,
    &connection_status::GET_NONCE,
    &get_parameter::GET,
    &sharding::GET_SHARD_MAP,
    &update_role::GRANT_PRIVILEGES,
    &update_role::GRANT_ROLES,
    &grant_to_user::GRANT,
    &hello::HELLO,
    &host_info::COMMAND,
    &insert::COMMAND,
    &users_info::INVALIDATE,
    &sharding::IS_DB_GRID,
    &hello::IS_MASTER,
    &sessions::KILL_ALL,
    &sessions::KILL_ALL_BY_PATTERN,
    &kill_cursors::COMMAND,
    &current_op::KILL,
    &sessions::KILL,
    &list_collections::COMMAND,
    &list_commands::COMMAND,
    &list_databases::COMMAND,
    &list_indexes::COMMAND,
    &sharding::LIST_SHARDS,
    &small::LOCK_INFO,
    &connection_status::LOGOUT,
    &small::LOG_ROTATE,
    &map_reduce::COMMAND,
    &sharding::MERGE_CHUNKS,
    &sharding::MOVE_CHUNK,
    &sharding::MOVE_PRIMARY,
    &sharding::MOVE_RANGE,
    &ping::COMMAND,
    &plan_cache::CLEAR,
    &plan_cache::CLEAR_FILTERS,
    &plan_cache::LIST_FILTERS,
    &plan_cache::SET_FILTER,
    &profile::COMMAND,
    &sessions::REFRESH,
    &index_builds::REINDEX,
    &sharding::REMOVE_SHARD,
    &sharding::REMOVE_SHARD_FROM_ZONE,
    &rename_collection::COMMAND,
    &replication::ABORT_CATCH_UP,
    &replication::FREEZE,
    &replication::GET_CONFIG,
    &replication::GET_RBID,
    &replication::GET_STATUS,
    &replication::INITIATE,
    &replication::MAINTENANCE,
    &replication::RECONFIG,
    &resize_oplog::COMMAND,
    &replication::STEP_DOWN,
    &replication::STEP_UP,
    &replication::SYNC_FROM,
    &sharding::RESHARD_COLLECTION,
    &update_role::REVOKE_PRIVILEGES,
    &update_role::REVOKE_ROLES,
    &grant_to_user::REVOKE,
    &roles_info::COMMAND,
    &rotate_certificates::COMMAND,
    &sasl::CONTINUE,
    &sasl::START,
    &server_status::COMMAND,
    &cluster_parameter::SET,
    &default_concerns::SET,
    &set_feature_compatibility_version::COMMAND,
    &index_builds::SET_COMMIT_QUORUM,
    &get_parameter::SET,
    &set_user_write_block_mode::COMMAND,
    &shard_collection::COMMAND,
    &small::SHARDING_STATE,
    &shutdown::COMMAND,
    &sharding::SPLIT,
    &split_vector::COMMAND,
    &sessions::START,
    &test_versions::DEPRECATION,
    &test_versions::DEPRECATION_IN_VERSION_2,
    &test_versions::REMOVAL,
    &test_versions::VERSION_2,
    &test_versions::VERSIONS_1_AND_2,
    &top::COMMAND,
    &update::COMMAND,
    &update_role::UPDATE,
    &search_indexes::UPDATE,
    &update_user::COMMAND,
    &sharding::UPDATE_ZONE_KEY_RANGE,
    &users_info::USERS,
    &validate::COMMAND,
    &validate_db_metadata::COMMAND,
    &connection_status::WHATS_MY_URI,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use marula_query::feature_version::FeatureVersion;

    use super::*;
    use crate::auth::action::ACTIONS;

    #[test]
    fn every_file_of_the_folder_is_in_the_table() {
        // The variable is read at run time: a build cache may be shared between checkouts.
        let package =
            std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where the package is");
        let folder = Path::new(&package).join("src/command");
        let frame = ["mod", "table"];
        let source = fs::read_to_string(folder.join("mod.rs")).unwrap();
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() || frame.contains(&stem.as_str()) {
                continue;
            }
            assert!(source.contains(&format!("&{stem}::")), "{stem}.rs is not listed in COMMANDS");
        }
    }

    #[test]
    fn every_row_says_who_may_send_it() {
        // A command in this list runs before authentication: only the commands that establish a
        // connection belong here.
        let for_anyone = [
            "_isSelf",
            "authenticate",
            "buildInfo",
            "configureFailPoint",
            "connectionStatus",
            "getLastError",
            "getnonce",
            "hello",
            "isMaster",
            "listCommands",
            "ping",
            "saslContinue",
            "saslStart",
            "whatsmyuri",
        ];
        for command in COMMANDS {
            let actions = match command.auth {
                Auth::Collection(list) | Auth::Database(list) | Auth::Cluster(list) => list,
                Auth::Anyone | Auth::User | Auth::Content(_) => &[],
            };
            let is_for_anyone = matches!(command.auth, Auth::Anyone);
            assert_eq!(is_for_anyone, for_anyone.contains(&command.name), "{}", command.name);
            for action in actions {
                assert!(ACTIONS.contains(action), "{}: {action}", command.name);
            }
        }
    }

    #[test]
    fn every_row_has_help_and_a_name_of_its_own() {
        let mut names = BTreeSet::new();
        for command in COMMANDS {
            assert!(command.help.len() > 10, "{} has no help", command.name);
            for name in [command.name].iter().chain(command.aliases) {
                assert!(names.insert(*name), "{name} is there twice");
                assert!(
                    find(name.as_bytes(), FeatureVersion::NEWEST)
                        .is_some_and(|(_, found)| found.name == command.name)
                );
            }
            let is_write = command.writes || command.is_retryable_write;
            assert!(!is_write || command.takes_write_concern, "{} writes", command.name);
        }
        assert!(find(b"nope", FeatureVersion::NEWEST).is_none());
        assert!(find(b"", FeatureVersion::NEWEST).is_none());
        let sorted = COMMANDS.is_sorted_by_key(|command| command.name.to_ascii_lowercase());
        assert!(sorted, "COMMANDS is in the order of names");
    }
}
