//! Sites that are under maintenance.

use std::collections::HashMap;

use redis::cmd;

use crate::connection::Store;
use crate::error::StoreError;

impl Store {
    /// Puts a site under maintenance: its name, and what the servers have to know about it. `None` ends it.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn set_maintenance(&mut self, site: &str, state: Option<&str>) -> Result<(), StoreError> {
        let key = self.key("maintenance");
        let command = match state {
            Some(state) => cmd("HSET").arg(key).arg(site).arg(state).take(),
            None => cmd("HDEL").arg(key).arg(site).take(),
        };
        Ok(command.query::<i64>(&mut *self.connection).map(drop)?)
    }

    /// Returns the sites that are under maintenance, each with its state.
    ///
    /// # Errors
    /// When the store does not respond.
    pub fn maintenance(&mut self) -> Result<HashMap<String, String>, StoreError> {
        let key = self.key("maintenance");
        Ok(cmd("HGETALL").arg(key).query(&mut *self.connection)?)
    }
}
