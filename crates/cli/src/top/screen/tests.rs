use dunlin_status::{Report, Route, RouteLimits};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::top::figures::Row;

/// Returns a server with `routes` routes, of which the last one fails, and a rate limit on each.
fn screen(routes: usize) -> Screen {
    let mut now = Report::default();
    now.server.time = 2.0;
    now.routes = (0..routes)
        .map(|number| Route {
            site: "example.com".into(),
            route: format!("/route{number}/*"),
            requests: 1_000_000 - number as u64,
            failed: u64::from(number + 1 == routes) * 7,
            ..Route::default()
        })
        .collect();
    now.limits = (0..routes)
        .map(|number| RouteLimits {
            site: "example.com".into(),
            route: format!("/route{number}/*"),
            rates: vec![dunlin_status::Rate { rule: "9/s".into(), ..Default::default() }],
            ..RouteLimits::default()
        })
        .collect();
    Screen::new(Figures::new(&now, &Report::default()), "/run/dunlin.sock")
}

fn drawn(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect();
    (0..height).map(line).collect()
}

fn has(lines: &[String], text: &str) -> bool {
    lines.iter().any(|line| line.contains(text))
}

#[test]
fn a_small_terminal_counts_what_it_hides_and_shows_the_failing_route() {
    let mut screen = screen(12);
    let lines = drawn(&mut screen, 80, 24);
    assert!(has(&lines, "Routes (1 more)") && has(&lines, "example.com /route11/*"), "{lines:#?}");
    assert!(has(&lines, "Tab: 12 limits") && has(&lines, "500,000"), "{lines:#?}");
    let lines = drawn(&mut screen, 80, 60);
    assert!(has(&lines, "┌Routes─") && has(&lines, "Limits ("), "{lines:#?}");
}

#[test]
fn a_narrow_terminal_keeps_names_and_whole_titles() {
    for width in [40, 56, 69, 80, 120] {
        let lines = drawn(&mut screen(5), width, 24);
        assert!(has(&lines, "example.com /route4/*"), "{width}: {lines:#?}");
        assert!(has(&lines, "req/s"), "{width}: {lines:#?}");
        let titles = &lines[1];
        for title in titles.split('┐').map(|title| title.trim_start_matches('┌')) {
            let value = title.trim_end_matches('─');
            assert!(
                value.is_empty() || value.ends_with([' ', '0', 'B', '–', '%']),
                "{width}: {titles}"
            );
        }
    }
}

#[test]
fn the_selected_part_scrolls_to_its_end_and_back() {
    let mut screen = screen(25);
    screen.scroll(Scroll::End);
    let lines = drawn(&mut screen, 80, 24);
    assert!(has(&lines, "(14 above, 0 more)") && has(&lines, "/route23/*"), "{lines:#?}");
    screen.scroll(Scroll::By(-1));
    assert!(has(&drawn(&mut screen, 80, 24), "(13 above, 1 more)"));
    screen.scroll(Scroll::Start);
    assert!(has(&drawn(&mut screen, 80, 24), "Routes (14 more)"));
    screen.scroll(Scroll::Page(1));
    assert!(has(&drawn(&mut screen, 80, 24), "(11 above, 3 more)"));
}

#[test]
fn a_part_without_room_is_shown_alone_when_it_is_selected() {
    let mut screen = screen(5);
    let lists = drawn(&mut screen, 80, 15);
    assert!(!has(&lists, "┌Limits"), "{lists:#?}");
    screen.select(true);
    assert_eq!(screen.selected, Part::Limits);
    let lines = drawn(&mut screen, 80, 15);
    assert!(has(&lines, "┌Limits") && has(&lines, "/route4/* 9/s"), "{lines:#?}");
    screen.select(true);
    assert_eq!(screen.selected, Part::Routes);
}

#[test]
fn a_store_that_does_not_respond_is_shown_first() {
    let mut screen = screen(1);
    let store = |name: &str, is_available| dunlin_status::ObjectStore {
        name: name.into(),
        is_available,
        ..Default::default()
    };
    screen.figures.report.object_stores =
        vec![store("s3://pages", true), store("gs://media", false)];
    let lines = drawn(&mut screen, 120, 40);
    let at = |text: &str| lines.iter().position(|line| line.contains(text));
    let (down, up) = (at("gs://media: does not respond, 0 objects"), at("s3://pages: responds, 0"));
    assert!(down.is_some() && down < up, "{lines:#?}");
}

#[test]
fn an_upstream_that_fails_is_shown_first_with_its_error() {
    let mut screen = screen(11);
    let upstream = |name: &str, failing| dunlin_status::Upstream {
        name: name.into(),
        site: "example.com".into(),
        route: "/*".into(),
        is_available: true,
        failing,
        last_error: Some("connecting failed".into()),
        ..Default::default()
    };
    screen.figures.report.upstreams = vec![upstream("http://a", 0), upstream("http://b", 3)];
    let failing = "http://b (example.com /*): failing, connecting failed, 0 in flight";
    for (width, height) in [(80, 24), (100, 30), (140, 44)] {
        let lines = drawn(&mut screen, width, height);
        assert!(has(&lines, failing), "{lines:#?}");
        let routes = lines.iter().filter(|line| line.contains("example.com /route")).count();
        assert!(routes >= 8, "{routes}: {lines:#?}");
    }
    let lines = drawn(&mut screen, 140, 44);
    let text = screen.figures.text();
    assert!(has(&lines, "http://a (example.com /*): available, 0 in flight"), "{lines:#?}");
    assert!(text.contains("upstream     http://b (example.com /*): failing"), "{text}");
}

#[test]
fn clients_have_no_column_for_what_is_not_counted() {
    let mut screen = screen(1);
    screen.figures.clients = vec![Row { name: "192.0.2.7".into(), failed: None, ..Row::default() }];
    let lines = drawn(&mut screen, 120, 40);
    assert_eq!(lines.iter().filter(|line| line.contains("5xx")).count(), 1, "{lines:#?}");
    assert!(has(&lines, "│192.0.2.7"), "{lines:#?}");
}

#[test]
fn the_help_fits_a_small_terminal() {
    let mut screen = screen(1);
    screen.shows_help = true;
    let lines = drawn(&mut screen, 40, 20);
    assert!(has(&lines, "sort by requests") && has(&lines, "of one interval"), "{lines:#?}");
}

#[test]
fn a_duration_has_two_units() {
    let texts = [12, 75, 7_500, 100_000].map(span);
    assert_eq!(texts, ["12 s", "1 min 15 s", "2 h 5 min", "1 d 3 h"]);
}
