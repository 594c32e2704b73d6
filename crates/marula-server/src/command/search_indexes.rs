//! `createSearchIndexes`, `updateSearchIndex`, `dropSearchIndex`: indexes of a search service,
//! which this server does not have.
//!
//! MongoDB added them in 7.0. A mongod without the search service fails with `SearchNotEnabled`,
//! and so does this server.
//! Source: manual "createSearchIndexes", "updateSearchIndex", "dropSearchIndex".

use marula_error::{Result, errors};
use marula_query::feature_version::FeatureVersion;

use super::fields::{Field, Types};
use super::{Auth, Command, Fields, Outcome};

errors! {
    search_not_enabled() = SearchNotEnabled, "Using Atlas Search Database Commands and the $listSearchIndexes aggregation stage requires additional configuration. Please connect to Atlas or an AtlasCLI local deployment to enable. For more information on how to connect, see https://dochub.mongodb.org/core/atlas-cli-deploy-local-reqs";
}

const REFUSED: Command = Command {
    since: FeatureVersion::V7_0,
    run: |_, request, _| {
        request.namespace()?;
        refuse()
    },
    ..Command::DEFAULT
};

pub(super) static CREATE: Command = Command {
    name: "createSearchIndexes",
    help: "Creates indexes in a search service. It always fails, because this server has none.",
    fields: Fields::Strict {
        place: "createSearchIndexes",
        fields: &[Field::required("indexes", Types::ARRAY)],
    },
    auth: Auth::Collection(&["createSearchIndexes"]),
    ..REFUSED
};

pub(super) static DROP: Command = Command {
    name: "dropSearchIndex",
    help: "Drops an index of a search service. It always fails, because this server has none.",
    fields: Fields::Strict {
        place: "dropSearchIndex",
        fields: &[Field::optional("id", Types::STRING), Field::optional("name", Types::STRING)],
    },
    auth: Auth::Collection(&["dropSearchIndex"]),
    ..REFUSED
};

pub(super) static UPDATE: Command = Command {
    name: "updateSearchIndex",
    help: "Changes an index of a search service. It always fails, because this server has none.",
    fields: Fields::Strict {
        place: "updateSearchIndex",
        fields: &[
            Field::optional("id", Types::STRING),
            Field::optional("name", Types::STRING),
            Field::required("definition", Types::DOCUMENT),
        ],
    },
    auth: Auth::Collection(&["updateSearchIndex"]),
    ..REFUSED
};

fn refuse() -> Result<Outcome> {
    Err(search_not_enabled())
}
