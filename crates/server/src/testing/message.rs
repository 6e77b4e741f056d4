//! Requests and responses of the tests' clients, whatever the protocol.

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) method: &'static str,
    pub(crate) target: String,
    pub(crate) host: &'static str,
    /// Names in lower case.
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) body: Option<Vec<u8>>,
    /// The length of the body is stated.
    pub(crate) states_length: bool,
}

impl Message {
    pub(crate) fn get(target: impl Into<String>) -> Self {
        Self::new("GET", target)
    }

    pub(crate) fn new(method: &'static str, target: impl Into<String>) -> Self {
        let (target, fields) = (target.into(), Vec::new());
        Self { method, target, host: "test", fields, body: None, states_length: true }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Sets a body without a stated length.
    pub(crate) fn streamed(self, body: impl Into<Vec<u8>>) -> Self {
        Self { states_length: false, ..self.body(body) }
    }
}

/// A response, as far as it has arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TestReply {
    /// Status codes of interim responses.
    pub(crate) interim: Vec<u16>,
    /// 0 before the final response.
    pub(crate) status: u16,
    /// Sorted, with names in lower case.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) end: End,
}

/// Progress of a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// More bytes follow.
    #[default]
    Open,
    Complete,
    /// The client can see that the response is incomplete.
    Aborted,
}

impl TestReply {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }
}
