//! Servers that share a limit, with traffic of several shapes: what they allow together.

use dunlin_limits::fleet::{Fleet, STEP, rules};
use proptest::prelude::*;

const STEPS_PER_SECOND: usize = 200;
const CLIENT: &str = "192.0.2.1";

/// The requests per second of each server at a time in seconds.
type Shape<'a> = &'a dyn Fn(usize, f64) -> f64;

/// Runs for `seconds`, and returns the number of allowed requests.
fn run(fleet: &mut Fleet, servers: usize, seconds: usize, shape: Shape<'_>) -> usize {
    let mut allowed = 0;
    for step in 0..seconds * STEPS_PER_SECOND {
        let time = step as f64 * STEP.as_secs_f64();
        for server in 0..servers {
            let count = fleet.arrivals(shape(server, time));
            allowed += fleet.requests(server, CLIENT, count);
        }
        fleet.step();
    }
    allowed
}

fn assert_near(allowed: usize, expected: f64, what: &str) {
    let ratio = allowed as f64 / expected;
    assert!((0.95..=1.05).contains(&ratio), "{what}: {allowed} allowed, {expected} expected");
}

/// Returns all requests that a single server with the limit would allow in that time, if there are more than that.
fn of_one_server(rate: u32, burst: u32, seconds: usize) -> f64 {
    f64::from(rate) * seconds as f64 + f64::from(burst)
}

#[test]
fn the_total_is_that_of_one_server_for_every_shape_of_overload() {
    for (servers, rate, burst) in [(3, 100, 100), (3, 1000, 10), (200, 1000, 1000), (200, 100, 100)]
    {
        let each = 3.0 * f64::from(rate) / servers as f64;
        let uniform = |_: usize, _: f64| each;
        let one_hot = |server: usize, _: f64| match server {
            0 => 3.0 * f64::from(rate),
            _ => 0.0,
        };
        let most_hot = |server: usize, _: f64| match server {
            0 => 2.0 * f64::from(rate),
            _ => each / 10.0,
        };
        let in_turn = |server: usize, time: f64| match time as usize / 2 % servers == server {
            true => 3.0 * f64::from(rate),
            false => 0.0,
        };
        let bursts = |_: usize, time: f64| if time.fract() < 0.5 { 4.0 * each } else { each / 2.0 };
        let shapes: [(&str, Shape<'_>); 5] = [
            ("uniform", &uniform),
            ("one hot server", &one_hot),
            ("one hot among others", &most_hot),
            ("servers in turn", &in_turn),
            ("bursts", &bursts),
        ];
        for (name, shape) in shapes {
            let mut fleet = Fleet::new(servers, &rules(rate, burst), 7);
            let allowed = run(&mut fleet, servers, 30, shape);
            let what = format!("{name}, {servers} servers, {rate}/s, burst {burst}");
            println!("{what}: {:.4}", allowed as f64 / of_one_server(rate, burst, 30));
            assert_near(allowed, of_one_server(rate, burst, 30), &what);
        }
    }
}

#[test]
fn traffic_within_the_limit_is_allowed_wherever_it_comes() {
    for servers in [3, 200] {
        let each = 60.0 / servers as f64;
        let uniform = |_: usize, _: f64| each;
        let one = |server: usize, _: f64| if server == 1 { 60.0 } else { 0.0 };
        let in_turn = |server: usize, time: f64| match time as usize % servers == server {
            true => 60.0,
            false => 0.0,
        };
        // A server that a client comes to has 1/n of the burst, at least one request, until its first exchange.
        let shapes: [(f64, Shape<'_>); 3] = [(0.98, &uniform), (0.98, &one), (0.9, &in_turn)];
        for (least, shape) in shapes {
            let mut sent = 0;
            let mut fleet = Fleet::new(servers, &rules(100, 100), 11);
            let mut allowed = 0;
            for step in 0..30 * STEPS_PER_SECOND {
                let time = step as f64 * STEP.as_secs_f64();
                for server in 0..servers {
                    let count = fleet.arrivals(shape(server, time));
                    sent += count;
                    allowed += fleet.requests(server, CLIENT, count);
                }
                fleet.step();
            }
            let share = allowed as f64 / sent as f64;
            println!("{servers} servers: {share:.4}");
            assert!(share >= least, "{servers} servers: {allowed} of {sent}");
        }
    }
}

#[test]
fn servers_that_join_and_leave_change_nothing_of_the_total() {
    let mut fleet = Fleet::new(3, &rules(200, 200), 3);
    let shape = |_: usize, _: f64| 200.0;
    let mut allowed = run(&mut fleet, 3, 20, &shape);
    (0..7).for_each(|_| fleet.join());
    allowed += run(&mut fleet, 10, 20, &shape);
    (0..8).for_each(|server| fleet.leave(server));
    allowed += run(&mut fleet, 10, 20, &shape);
    assert_near(allowed, of_one_server(200, 200, 60), "3, 10 and 2 servers");
}

#[test]
fn without_the_store_each_server_has_its_part_and_with_it_again_the_whole() {
    let mut fleet = Fleet::new(4, &rules(100, 40), 5);
    let one_hot = |server: usize, _: f64| if server == 2 { 400.0 } else { 0.0 };
    assert_near(run(&mut fleet, 4, 20, &one_hot), of_one_server(100, 40, 20), "with the store");
    fleet.is_connected = false;
    let alone = run(&mut fleet, 4, 20, &one_hot);
    assert_near(alone, 20.0 * 25.0, "without the store, a quarter");
    fleet.is_connected = true;
    let again = run(&mut fleet, 4, 20, &one_hot);
    // The bucket was refilled in the meantime.
    assert_near(again, of_one_server(100, 40, 20), "with the store again");
    // All servers together have the whole limit without it, too.
    fleet.is_connected = false;
    let all = run(&mut fleet, 4, 20, &|_, _| 100.0);
    assert_near(all, 100.0 * 20.0, "all parts");
}

#[test]
fn after_a_pause_the_whole_burst_is_there_again_whatever_the_servers_spent_without_the_store() {
    let mut fleet = Fleet::new(3, &rules(100, 100), 5);
    let one_hot = |server: usize, _: f64| if server == 0 { 300.0 } else { 0.0 };
    run(&mut fleet, 3, 3, &one_hot);
    fleet.is_connected = false;
    run(&mut fleet, 3, 6, &one_hot);
    fleet.is_connected = true;
    run(&mut fleet, 3, 2, &|_, _| 0.0);
    let allowed = run(&mut fleet, 3, 6, &one_hot);
    let ratio = allowed as f64 / of_one_server(100, 100, 6);
    assert!((0.98..=1.02).contains(&ratio), "{ratio}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever comes where, the servers never allow more than one server would and what they may overdraw at once.
    #[test]
    fn no_traffic_gets_more_than_the_limit_for_long(
        servers in 1_usize..12,
        rate in 1_u32..500,
        burst in 1_u32..500,
        seed: u64,
        loads in proptest::collection::vec((0_usize..12, 0.0_f64..2000.0, 0.1_f64..4.0), 1..12),
    ) {
        let mut fleet = Fleet::new(servers, &rules(rate, burst), seed);
        let (mut allowed, mut seconds) = (0, 0.0);
        for (server, load, time) in loads {
            for _ in 0..(time / STEP.as_secs_f64()) as usize {
                let count = fleet.arrivals(load);
                allowed += fleet.requests(server % servers, CLIENT, count);
                fleet.step();
                seconds += STEP.as_secs_f64();
            }
        }
        let capacity = f64::from(burst).max(f64::from(rate) / 10.0);
        // Each server can spend its credit before it hears of the others.
        let overdrawn = (f64::from(burst) / servers as f64).max(1.0) * servers as f64;
        let most = f64::from(rate) * seconds + capacity + overdrawn;
        prop_assert!(allowed as f64 <= most * 1.02 + 2.0, "{allowed} of {most}");
    }
}
