//! The connection to the store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dunlin_config::{Shared, Topology};
use dunlin_limits::names::NameKey;
use redis::cluster::ClusterClientBuilder;
use redis::{
    ConnectionInfo, ConnectionLike, FromRedisValue, IntoConnectionInfo, ScriptInvocation, cmd,
};
use rustls::ClientConfig;

use crate::error::StoreError;
use crate::link::{self, Link};

/// A connection to the store.
pub struct Store {
    pub(crate) connection: Box<dyn ConnectionLike + Send>,
    prefix: String,
    pub(crate) names: NameKey,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Store {
    /// Connects to the store. Each step takes `settings.timeout` at most.
    ///
    /// # Errors
    /// Why it is not reachable, or rejects the connection.
    pub fn connect(settings: &Shared) -> Result<Self, StoreError> {
        let tls = tls(settings)?;
        let connection: Box<dyn ConnectionLike + Send> = match &settings.topology {
            Topology::Single => {
                let url = settings.urls.first().map_or("", String::as_str);
                Box::new(Link::open(&info(url)?, tls.as_ref(), settings.timeout)?)
            }
            Topology::Sentinel(group) => Box::new(master_of(group, settings, tls.as_ref())?),
            Topology::Cluster => {
                let nodes =
                    settings.urls.iter().map(|url| info(url)).collect::<Result<Vec<_>, _>>()?;
                if let Some(tls) = &tls {
                    link::set_tls_of_cluster(tls);
                }
                let builder = ClusterClientBuilder::new(nodes)
                    .connection_timeout(settings.timeout)
                    .response_timeout(settings.timeout)
                    .retries(2);
                Box::new(builder.build()?.get_generic_connection::<Link>()?)
            }
        };
        let names = NameKey::new(&[0; 32]);
        let mut store = Self { connection, prefix: settings.prefix.clone(), names };
        store.read_names()?;
        Ok(store)
    }

    /// Returns the name of a key.
    pub(crate) fn key(&self, name: impl fmt::Display) -> String {
        format!("{}:{name}", self.prefix)
    }

    pub(crate) fn invoke<T: FromRedisValue>(
        &mut self,
        script: &ScriptInvocation<'_>,
    ) -> Result<T, StoreError> {
        let connection = &mut *self.connection;
        // The script is sent when the store does not have it.
        Ok(script.invoke(&mut Wrapped(connection))?)
    }
}

/// A connection without its type, for functions that take one of a known size.
struct Wrapped<'a>(&'a mut dyn ConnectionLike);

impl ConnectionLike for Wrapped<'_> {
    fn req_packed_command(&mut self, command: &[u8]) -> redis::RedisResult<redis::Value> {
        self.0.req_packed_command(command)
    }

    fn req_packed_commands(
        &mut self,
        commands: &[u8],
        offset: usize,
        count: usize,
    ) -> redis::RedisResult<Vec<redis::Value>> {
        self.0.req_packed_commands(commands, offset, count)
    }

    fn req_command(&mut self, command: &redis::Cmd) -> redis::RedisResult<redis::Value> {
        self.0.req_command(command)
    }

    fn get_db(&self) -> i64 {
        self.0.get_db()
    }

    fn check_connection(&mut self) -> bool {
        self.0.check_connection()
    }

    fn is_open(&self) -> bool {
        self.0.is_open()
    }
}

/// Returns the configuration of TLS, if a URL needs it.
fn tls(settings: &Shared) -> Result<Option<Arc<ClientConfig>>, StoreError> {
    if !settings.urls.iter().any(|url| url.starts_with("rediss")) {
        return Ok(None);
    }
    let config = dunlin_tls::client_config(settings.authority.as_deref());
    let mut config = ClientConfig::clone(&*config.map_err(StoreError::new)?);
    // It is no HTTP.
    config.alpn_protocols.clear();
    Ok(Some(Arc::new(config)))
}

fn info(url: &str) -> Result<ConnectionInfo, StoreError> {
    Ok(url.into_connection_info()?)
}

/// Returns the master that the first responding sentinel names. It has the credentials, the database and the scheme of that
/// sentinel's URL.
fn master_of(
    group: &str,
    settings: &Shared,
    tls: Option<&Arc<ClientConfig>>,
) -> Result<Link, StoreError> {
    let mut last = StoreError::new("no sentinel is configured");
    for url in &settings.urls {
        let sentinel = info(url)?;
        let named = look_up(group, sentinel.clone(), tls, settings.timeout);
        let (host, port) = match named {
            Ok(named) => named,
            Err(error) => {
                last = error;
                continue;
            }
        };
        let address = match sentinel.addr().clone() {
            redis::ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                redis::ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => redis::ConnectionAddr::Tcp(host, port),
        };
        let mut master = Link::open(&sentinel.set_addr(address), tls, settings.timeout)?;
        // A sentinel may not know yet that another one is the master.
        let role: (String,) = match cmd("ROLE").query::<redis::Value>(&mut master)? {
            redis::Value::Array(mut parts) if !parts.is_empty() => {
                (redis::from_redis_value(parts.swap_remove(0))
                    .map_err(|error| StoreError::new(error.to_string()))?,)
            }
            _ => return Err(StoreError::new("the role of the store is unknown")),
        };
        if role.0 != "master" {
            return Err(StoreError::new(format!("the sentinels name a {} as the master", role.0)));
        }
        return Ok(master);
    }
    Err(last)
}

/// Returns the address of the master that a sentinel names. Sentinels often have no password where the store has one.
fn look_up(
    group: &str,
    sentinel: ConnectionInfo,
    tls: Option<&Arc<ClientConfig>>,
    timeout: Duration,
) -> Result<(String, u16), StoreError> {
    let query = |info: ConnectionInfo| -> Result<Option<(String, u16)>, StoreError> {
        let mut connection = Link::open(&info, tls, timeout)?;
        let mut command = cmd("SENTINEL");
        Ok(command.arg("get-master-addr-by-name").arg(group).query(&mut connection)?)
    };
    let plain = sentinel.clone().set_redis_settings(redis::RedisConnectionInfo::default());
    let named = query(plain).or_else(|_| {
        let settings = sentinel.redis_settings().clone().set_db(0);
        query(sentinel.set_redis_settings(settings))
    })?;
    named.ok_or_else(|| StoreError::new(format!("the sentinels do not know the group {group:?}")))
}
