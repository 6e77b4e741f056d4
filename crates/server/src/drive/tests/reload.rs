//! A reload while connections are open.

use std::time::Duration;

use crate::testing::handler::{Kind, Plan};
use crate::testing::{End, Http1, Http2, Message, run};

fn routes(text: &str) -> String {
    format!("[[site.route]]\npath = '/text'\nrespond = {{ body = '{text}' }}\n")
}

#[test]
fn a_connection_serves_its_next_request_by_the_new_configuration() {
    run(&routes("old"), &[], async |server| {
        let mut first = Http1::new(server.connect());
        let mut second = Http2::new(server.connect(), 65_535);
        for text in ["old", "new"] {
            first.send(&Message::get("/text"));
            let id = second.send(&Message::get("/text"));
            server.settle().await;
            first.receive(usize::MAX);
            second.receive(usize::MAX);
            assert_eq!(first.replies.last().map(|reply| &reply.body[..]), Some(text.as_bytes()));
            assert_eq!(second.replies[&id].body, text.as_bytes());
            server.reload("", &routes("new"));
            server.settle().await;
        }
    });
}

#[test]
fn a_request_in_progress_is_completed_and_recorded_once() {
    let plan =
        Plan { id: 1, kind: Kind::Streaming, size: 50, chunk: 5, pause: 100, ..Plan::default() };
    run(&routes("old"), &[], async |server| {
        let mut first = Http1::new(server.connect());
        let mut second = Http2::new(server.connect(), 65_535);
        first.send(&Message::get(plan.target()));
        let id = second.send(&Message::get(plan.target()));
        server.advance(Duration::from_millis(200)).await;
        server.reload("", &routes("new"));
        server.advance(Duration::from_millis(1200)).await;
        first.receive(usize::MAX);
        second.receive(usize::MAX);
        for reply in [&first.replies[0], &second.replies[&id]] {
            assert_eq!((&reply.body, reply.end), (&plan.content(), End::Complete));
        }
        assert_eq!(server.records().len(), 2);
    });
}
