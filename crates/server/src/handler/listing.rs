//! Directory listings, as HTML and as JSON.
