//! The admission policy of the server's caches: bounded stores, which admit and evict entries by their frequency of use.
//!
//! The file cache and the response cache each have a [`Store`](store::Store). A cache that is used without counting each
//! request takes a [`Sampler`](sampler::Sampler).

mod frequency;
pub mod sampler;
pub mod store;
