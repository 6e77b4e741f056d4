//! Media types by file name extension.
