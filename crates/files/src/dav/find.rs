//! PROPFIND: the properties of a resource and its members, in parts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::vec;

use dunlin_dav::headers::{self, Depth};
use dunlin_dav::locks::Lock;
use dunlin_dav::multistatus::{self, LocksOf, Resource};
use dunlin_dav::requests::{self, Propfind};
use dunlin_net::clock;

use super::tree::{Item, split};
use super::{DavRequest, Outcome, Tree, properties, tree_path};
use crate::media_type::content_type;

/// The parts of a response to a PROPFIND.
#[derive(Debug)]
pub struct Walk {
    tree: Arc<Tree>,
    wanted: Propfind,
    depth: Depth,
    /// Resources that the response may have.
    left: usize,
    /// Collections whose members were not visited. Each of them is in the response.
    collections: VecDeque<Vec<u8>>,
    /// The collection whose members are visited, and the rest of their names.
    current: Option<(Vec<u8>, vec::IntoIter<Vec<u8>>)>,
    /// What was written and not taken.
    text: String,
    has_ended: bool,
}

/// The size of a part in bytes, but for its last resource.
const PART: usize = 32 * 1024;

impl Walk {
    /// Begins the response to a request.
    ///
    /// # Errors
    /// The response, if there are no properties.
    pub fn begin(tree: Arc<Tree>, request: &DavRequest) -> Result<Self, Outcome> {
        let wanted = requests::propfind(&request.body)?;
        let head = request.request.as_request();
        let depth = headers::depth(&head)?.unwrap_or(Depth::Infinity);
        let path = tree_path(&request.path);
        let item = tree.find(&path)?.ok_or(Outcome::of(404))?;
        if depth == Depth::Infinity && item.is_collection && !tree.rules.infinity {
            return Err(Outcome::error(403, "propfind-finite-depth", None));
        }
        tree.check_conditions(request, &path, &[])?;
        let mut walk = Self {
            wanted,
            depth,
            left: tree.rules.entries.saturating_sub(1),
            tree,
            collections: VecDeque::new(),
            current: None,
            text: multistatus::START.to_owned(),
            has_ended: false,
        };
        walk.write(&path, &item);
        if item.is_collection && depth > Depth::Zero {
            walk.collections.push_back(path);
        }
        Ok(walk)
    }

    /// Returns the next part; `None` after the last.
    pub fn next_part(&mut self) -> Option<String> {
        while !self.has_ended && self.text.len() < PART {
            self.step();
        }
        let part = std::mem::take(&mut self.text);
        (!part.is_empty()).then_some(part)
    }

    /// Returns `true` if all parts were taken.
    pub fn has_ended(&self) -> bool {
        self.has_ended && self.text.is_empty()
    }

    /// Visits a resource, or opens a collection.
    fn step(&mut self) {
        if let Some((collection, names)) = &mut self.current {
            let Some(name) = names.next() else {
                self.current = None;
                return;
            };
            let path = [&**collection, b"/", &*name].concat();
            return self.visit(path);
        }
        let Some(collection) = self.collections.pop_front() else { return self.end() };
        // One more shows that there are too many.
        match self.tree.names(&collection, self.left.saturating_add(1)) {
            Ok(names) => self.current = Some((collection, names.into_iter())),
            Err(failure) => {
                let href = self.tree.href(&collection, true);
                multistatus::write_status(&href, failure.status(), &mut self.text);
            }
        }
    }

    fn visit(&mut self, path: Vec<u8>) {
        // What a request for it would not find, the response does not name.
        let Ok(Some(item)) = self.tree.find(&path) else { return };
        if self.left == 0 {
            let (collection, _) = split(&path).unwrap_or_default();
            // Insufficient Storage: there are more.
            let href = self.tree.href(collection, true);
            multistatus::write_status(&href, 507, &mut self.text);
            return self.end();
        }
        self.left -= 1;
        self.write(&path, &item);
        if item.is_collection && self.depth == Depth::Infinity {
            self.collections.push_back(path);
        }
    }

    fn end(&mut self) {
        self.text.push_str(multistatus::END);
        (self.has_ended, self.current) = (true, None);
        self.collections.clear();
    }

    fn write(&mut self, path: &[u8], item: &Item) {
        let tree = &self.tree;
        let now = clock::monotonic_millis();
        let is_lockable = tree.rules.has_locks();
        let locks: Vec<Lock> = match is_lockable {
            true => tree.locks().covering(&tree.lock_path(path), now).cloned().collect(),
            false => Vec::new(),
        };
        let locks = LocksOf { locks: &locks, is_lockable, now };
        multistatus::write_properties(
            &self.wanted,
            &tree.resource(path, item),
            locks,
            &mut self.text,
        );
    }
}

impl Tree {
    fn resource(&self, path: &[u8], item: &Item) -> Resource {
        let is_collection = item.is_collection;
        let tag = self.tag(item, false).map(|tag| tag.to_bytes());
        let name = crate::media_type::file_name(path);
        let media_type = || content_type(&name, &self.route.types, &self.route.charset).media_type;
        Resource {
            href: self.href(path, is_collection),
            is_collection,
            length: item.metadata.size,
            modified: self.modified(item),
            tag: tag.map(|tag| String::from_utf8_lossy(&tag).into_owned()),
            media_type: (!is_collection).then(|| media_type().to_string()),
            properties: properties::read(&item.fd),
        }
    }
}
