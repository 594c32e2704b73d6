//! A target in an object store.
//!
//! `object_store` is asynchronous. One thread of the target runs its connections; each call here
//! blocks the calling thread until it is done. Nothing of it runs on the server's other threads.
//! `object_store` retries failed requests with growing pauses.

use std::time::Duration;

use object_store::path::Path;
use object_store::{
    ClientOptions, Error as StoreError, ObjectStore, ObjectStoreExt as _, RetryConfig,
};
use tokio::runtime::{Builder, Runtime};
use url::Url;

use super::{Stored, shown};
use crate::{Error, Result};

/// The timeout of one request.
const REQUEST_MAX: Duration = Duration::from_secs(120);
/// The time for which a failed request is retried.
const RETRY_MAX: Duration = Duration::from_secs(60);

pub(super) struct Cloud {
    store: Box<dyn ObjectStore>,
    runtime: Runtime,
    prefix: Path,
    shown: String,
}

impl Cloud {
    pub(super) fn open(address: &str) -> Result<Cloud> {
        let shown = shown(address);
        let wrong = |what: &str| Error::Refused(format!("'{shown}' is not a target: {what}"));
        let url = Url::parse(address).map_err(|error| wrong(&error.to_string()))?;
        if url.host_str().is_none_or(str::is_empty) {
            return Err(wrong("it names no bucket"));
        }
        // `object_store` expects the variables of the vendors' tools with lower-case names, and
        // ignores others.
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?.to_ascii_lowercase(), value.into_string().ok()?))
        });
        let (store, prefix) = object_store_of(&url, variables.collect())
            .map_err(|error| wrong(&first_line(&error.to_string())))?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("backup-io")
            .enable_all()
            .build()
            .map_err(|error| {
                Error::Target(format!("could not start the thread for '{shown}': {error}"))
            })?;
        Ok(Cloud { store, runtime, prefix, shown })
    }

    pub(super) fn put(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let path = self.path(name);
        let put = self.runtime.block_on(self.store.put(&path, bytes.into()));
        put.map(drop).map_err(|error| self.failed("write", name, &error))
    }

    pub(super) fn get(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path(name);
        let got = self.runtime.block_on(async { self.store.get(&path).await?.bytes().await });
        match got {
            Ok(bytes) => Ok(Some(bytes.into())),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("read", name, &error)),
        }
    }

    pub(super) fn list(&self, prefix: &str) -> Result<Vec<Stored>> {
        use futures_util::TryStreamExt as _;
        let below = self.path(prefix.trim_end_matches('/'));
        let listed = self.runtime.block_on(self.store.list(Some(&below)).try_collect::<Vec<_>>());
        let listed = listed.map_err(|error| self.failed("list", prefix, &error))?;
        let own = |path: &Path| {
            let name = path.as_ref().strip_prefix(self.prefix.as_ref())?.trim_start_matches('/');
            Some(name.to_owned())
        };
        let all = listed.into_iter().filter_map(|object| {
            let put_ms = object.last_modified.timestamp_millis();
            Some(Stored { name: own(&object.location)?, bytes: object.size, put_ms })
        });
        Ok(all.collect())
    }

    pub(super) fn delete(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        match self.runtime.block_on(self.store.delete(&path)) {
            Err(StoreError::NotFound { .. }) | Ok(()) => Ok(()),
            Err(error) => Err(self.failed("remove", name, &error)),
        }
    }

    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}/{name}", self.prefix))
    }

    fn failed(&self, verb: &str, name: &str, error: &StoreError) -> Error {
        let cause = first_line(&error.to_string());
        Error::Target(format!("could not {verb} '{}/{name}': {cause}", self.shown))
    }
}

/// Returns the store of an address, with the limits above.
fn object_store_of(
    url: &Url,
    variables: Vec<(String, String)>,
) -> object_store::Result<(Box<dyn ObjectStore>, Path)> {
    use object_store::ObjectStoreScheme as Scheme;
    let (scheme, prefix) = Scheme::parse(url).map_err(object_store::Error::from)?;
    let retry = RetryConfig { retry_timeout: RETRY_MAX, ..RetryConfig::default() };
    let client = ClientOptions::new().with_timeout(REQUEST_MAX);
    /// Builds a store from the address and from all variables that its builder knows.
    macro_rules! built {
        ($builder:ty) => {{
            let builder = <$builder>::new().with_url(url.as_str());
            let builder = builder.with_retry(retry).with_client_options(client);
            let builder =
                variables.iter().fold(builder, |builder, (name, value)| match name.parse() {
                    Ok(option) => builder.with_config(option, value),
                    Err(_) => builder,
                });
            Box::new(builder.build()?)
        }};
    }
    let store: Box<dyn ObjectStore> = match scheme {
        Scheme::AmazonS3 => built!(object_store::aws::AmazonS3Builder),
        Scheme::GoogleCloudStorage => built!(object_store::gcp::GoogleCloudStorageBuilder),
        Scheme::MicrosoftAzure => built!(object_store::azure::MicrosoftAzureBuilder),
        _ => {
            return Err(object_store::Error::NotSupported {
                source: "addresses begin with s3://, gs://, az:// or file://".into(),
            });
        }
    };
    Ok((store, prefix))
}

/// Returns the first line of an error, because a store may return a whole page.
fn first_line(text: &str) -> String {
    const CHARS_MAX: usize = 300;
    text.split(['\n', '\r']).next().unwrap_or_default().chars().take(CHARS_MAX).collect()
}
