use std::iter;

use super::*;
use crate::engine::Extras;
use crate::plan::{Arrivals, Plan};
use crate::testing::plan;
use crate::verify::Reference;

const MS: u64 = 1_000_000;

fn job(plan: Plan) -> Job {
    Job::new(plan, Extras::default(), Reference::default()).unwrap()
}

fn warm(end: End) -> Job {
    job(Plan { warmup_seconds: 0.1, end, ..plan(1.0) })
}

fn recorder(job: &Job) -> Recorder {
    Recorder::new(job, Segment::WHOLE)
}

/// Sends the next request at a time.
fn issue(recorder: &mut Recorder, job: &Job, now: u64) -> InFlight {
    recorder.now = now;
    let next = recorder.next_request(&mut None).unwrap();
    recorder.issue(next, 0, &job.requests[0])
}

/// Completes a request at a time, by a response with that status and body.
fn complete(recorder: &mut Recorder, job: &Job, now: u64, request: &InFlight, with: (u16, &str)) {
    recorder.now = now;
    let mut response = recorder.first_byte(with.0, job.expected.has(with.0));
    response.add(with.1.as_bytes(), true, recorder.verifies);
    let mut connection = recorder.open(0);
    recorder.complete(job, &mut connection, request, &response);
}

fn none() -> String {
    String::new()
}

#[test]
fn the_warmup_is_counted_apart_in_every_figure() {
    let job = warm(End::Seconds(0.9));
    let mut recorder = recorder(&job);
    let mut connection = recorder.open(3);
    for (sent, now) in [(1, 50), (60, 99), (99, 101), (500, 600), (990, 1001)] {
        let request = issue(&mut recorder, &job, sent * MS);
        recorder.record_arrival(sent * MS);
        recorder.now = now * MS;
        recorder.receive(100);
        let response = recorder.first_byte(200, true);
        recorder.complete(&job, &mut connection, &request, &response);
    }
    let request = issue(&mut recorder, &job, 0);
    recorder.now = 90 * MS;
    recorder.fail(ErrorKind::Reset, iter::once(request), none);
    recorder.fail_connection(ErrorKind::Refused, none);
    assert_eq!(recorder.late, [Times { due: 990 * MS, sent: 990 * MS }]);
    let mut tally = recorder.tally;
    tally.settle_status();
    assert_eq!((tally.requests, tally.latency.len(), tally.status[&200]), (2, 2, 2));
    assert_eq!((tally.bytes, tally.opened, tally.due, tally.each[3]), (200, 1, 2, 2));
    assert_eq!((tally.warmup.requests, tally.warmup.errors), (2, 2));
    assert_eq!((tally.errors.len(), tally.failed_connections), (0, 0));
}

#[test]
fn a_number_of_requests_is_that_of_the_measurement() {
    let job = warm(End::Requests(1));
    let mut recorder = recorder(&job);
    for (sent, now) in [(99, 101), (101, 102)] {
        assert!(!recorder.is_spent());
        let request = issue(&mut recorder, &job, sent * MS);
        complete(&mut recorder, &job, now * MS, &request, (200, ""));
    }
    assert_eq!((recorder.tally.requests, recorder.tally.warmup.requests), (1, 1));
    assert!(recorder.is_spent() && recorder.next_request(&mut None).is_none());
}

#[test]
fn timeouts_count_by_their_age_and_other_failures_do_not() {
    let job = job(plan(1.0));
    let mut recorder = recorder(&job);
    for kind in [ErrorKind::Timeout, ErrorKind::Reset] {
        let mut request = issue(&mut recorder, &job, 100 * MS);
        request.times.due = 0;
        recorder.now = 600 * MS;
        recorder.fail(kind, iter::once(request), none);
    }
    let tally = recorder.tally;
    assert_eq!((tally.latency.len(), tally.service.len(), tally.requests), (1, 1, 0));
    assert!(tally.latency.max() >= 600 * MS && tally.service.max() >= 500 * MS);
    assert_eq!((tally.slowest, recorder.in_flight), (0, 0), "it is no response");
}

#[test]
fn a_lost_request_is_sent_again_first_and_not_forever() {
    let job = job(Plan { end: End::Requests(2), ..plan(1.0) });
    let mut recorder = recorder(&job);
    let mut request = issue(&mut recorder, &job, MS);
    let mut losses = 0;
    while request.repeats > 0 {
        recorder.lose(ErrorKind::Closed, iter::once(request), none);
        assert_eq!(recorder.in_flight, 0);
        request = issue(&mut recorder, &job, 2 * MS);
        losses += 1;
        assert_eq!(request.times, Times { due: MS, sent: 2 * MS });
    }
    assert_eq!((losses, recorder.tally.lost.count()), (10, 10));
    let other = issue(&mut recorder, &job, 3 * MS);
    recorder.send_again([request, other].into_iter());
    let due = [0, 0].map(|_| issue(&mut recorder, &job, 4 * MS).times.due);
    assert_eq!(due, [MS, 3 * MS], "in their order");
    assert!(recorder.next_request(&mut None).is_none(), "both requests are in flight");
}

#[test]
fn only_a_response_with_an_expected_status_becomes_the_expected_one() {
    let job = job(Plan { verify: Verify::FirstResponse, ..plan(1.0) });
    let mut recorder = recorder(&job);
    for with in [(503, "busy"), (200, "page"), (200, "page"), (200, "longer"), (200, "gape")] {
        let request = issue(&mut recorder, &job, MS);
        complete(&mut recorder, &job, 2 * MS, &request, with);
    }
    let tally = recorder.tally;
    assert_eq!(tally.requests, 2);
    let kinds = [ErrorKind::Status, ErrorKind::Length, ErrorKind::Hash];
    assert_eq!(tally.errors, kinds.map(|kind| (kind, 1)).into());
    assert!(
        tally.first_errors[&ErrorKind::Status].ends_with("status 503, the server sent \"busy\"")
    );
}

#[test]
fn a_run_without_a_server_ends_after_the_time_of_a_response() {
    let model = Model::OpenRequests(Arrivals::Constant { rate: 1000.0 });
    let job = job(Plan { end: End::Requests(3), model, ..plan(1.0) });
    let mut recorder = recorder(&job);
    recorder.now = 10 * MS;
    assert_eq!(recorder.arrive(&job), 3);
    recorder.record_backlog();
    assert!(recorder.has_waiting() && recorder.next_due().is_none());
    recorder.fail_connection(ErrorKind::Refused, none);
    assert!(!recorder.is_spent(), "requests wait for any connection");
    recorder.now = 1011 * MS;
    assert!(recorder.is_spent());
    let (tally, _) = recorder.finish(iter::empty());
    let backlog = tally.backlog.unwrap();
    assert_eq!((tally.due, tally.waiting, backlog.waiting, backlog.at), (3, 3, 3, 10 * MS));
}

#[test]
fn bodies_with_a_dictionary_are_verified_by_their_content() {
    use dunlin_dictionary::{dcz, sha256};

    let (old, new) = (b"the old version of a page", b"the new version of a page");
    let coded = dcz::compress(old, &sha256(old), new).unwrap();
    let plan = Plan { verify: Verify::FirstResponse, ..plan(1.0) };
    let extras = Extras { dictionary: old.to_vec(), ..Extras::default() };
    let job = Job::new(plan, extras, Reference::default()).unwrap();
    let mut recorder = recorder(&job);
    let other = dcz::compress(new, &sha256(new), new).unwrap();
    let bodies: [&[u8]; 5] = [new, &coded, &other, &coded[..50], &coded];
    for body in bodies {
        let request = issue(&mut recorder, &job, MS);
        recorder.now = 2 * MS;
        let mut response = recorder.first_byte(200, true);
        let (first, second) = body.split_at(body.len() / 2);
        response.add(first, false, recorder.verifies);
        response.add(second, true, recorder.verifies);
        let mut connection = recorder.open(0);
        recorder.complete(&job, &mut connection, &request, &response);
    }
    assert_eq!(recorder.tally.requests, 3);
    assert_eq!(recorder.tally.errors, [(ErrorKind::Hash, 2)].into());
}
