//! The cookie that keeps the requests of a client at one upstream.

use std::fmt::Write;
use std::sync::Arc;

use dunlin_config::{SameSite, Sticky};
use dunlin_http::FieldName;

use crate::call::Call;
use crate::upstream::Upstream;

impl Call<'_> {
    /// Returns the upstream that the client's cookie names.
    pub(crate) fn sticky_upstream(&self) -> Option<&Arc<Upstream>> {
        let sticky = self.group.rules.sticky.as_ref()?;
        let value = self.cookie(sticky.cookie.as_bytes())?;
        self.group.upstreams.iter().find(|upstream| upstream.cookie.as_bytes() == value)
    }

    /// Returns the value of a cookie of the client (RFC 6265 §4.2.1).
    fn cookie(&self, name: &[u8]) -> Option<&[u8]> {
        let values = self.request.values(FieldName::Cookie);
        let mut pairs = values.flat_map(|value| value.split(|&byte| byte == b';'));
        pairs.find_map(|pair| pair.trim_ascii().strip_prefix(name)?.strip_prefix(b"="))
    }

    /// Returns the value of `Set-Cookie` that keeps the client at `upstream`, if it is not there yet. `current` is the upstream
    /// that its cookie names.
    pub(crate) fn set_cookie(
        &self,
        current: Option<&Arc<Upstream>>,
        upstream: &Upstream,
    ) -> Option<String> {
        let sticky = self.group.rules.sticky.as_ref()?;
        let is_current = current.is_some_and(|current| current.id == upstream.id);
        (!is_current).then(|| value(sticky, upstream, self.client.encrypted))
    }
}

fn value(sticky: &Sticky, upstream: &Upstream, is_encrypted: bool) -> String {
    let same_site = match sticky.same_site {
        SameSite::Lax => "Lax",
        SameSite::Strict => "Strict",
        SameSite::None => "None",
    };
    let mut value =
        format!("{}={}; Path=/; HttpOnly; SameSite={same_site}", sticky.cookie, upstream.cookie);
    if let Some(age) = sticky.max_age {
        let _ = write!(value, "; Max-Age={}", age.as_secs());
    }
    if sticky.secure.unwrap_or(is_encrypted || sticky.same_site == SameSite::None) {
        value.push_str("; Secure");
    }
    value
}
