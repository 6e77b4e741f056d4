//! The admission policy of the server's caches: bounded stores, which admit and evict entries by their frequency of use.
//!
//! The file cache and the response cache share a [`CommonStore`](common::CommonStore), so that one bound holds for both; responses on disk
//! have a [`Store`](store::Store) of their own. A cache that is used without counting each request takes a
//! [`Sampler`](sampler::Sampler), or a [`SharedSampler`](sampler::SharedSampler) for several threads.

pub mod common;
mod frequency;
pub mod sampler;
pub mod store;
