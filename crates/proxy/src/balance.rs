//! The choice of an upstream for a request.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::group::Group;
use crate::upstream::Upstream;

impl Group {
    /// Chooses the upstream with the fewest requests among those that `tried` does not contain; `None` if it contains
    /// all.
    pub(crate) fn choose(&self, tried: &[usize]) -> Option<&Arc<Upstream>> {
        if let [only] = &self.upstreams[..] {
            return (!tried.contains(&only.id)).then_some(only);
        }
        let count = self.upstreams.len();
        let first = self.next.fetch_add(1, Ordering::Relaxed) % count.max(1);
        let order = (0..count).map(|at| &self.upstreams[(first + at) % count]);
        order
            .filter(|upstream| !tried.contains(&upstream.id))
            .min_by_key(|upstream| upstream.in_flight.load(Ordering::Relaxed))
    }
}
