//! A bare epoll responder.
fn main() {}
