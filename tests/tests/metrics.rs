//! Room `tests`: the metrics of `metrics/must.txt` on a running member and on three: each is there with its type
//! and labels, and moves after what moves it. Real etcd, where it can be had, passes the same test. May touch
//! processes and sockets; must not look inside.

#![allow(clippy::disallowed_methods, reason = "real processes, real time")]

use std::time::{Duration, Instant};
use tenon_tests::group::Group;
use tenon_tests::metrics::{self, Page, Row};
use tenon_tests::schema::Schema;
use tenon_tests::server::{Kind, oracle};
use tenon_tests::web;

/// How long a metric may take to move: etcd asks its peers every few seconds.
const MOVES_WITHIN: Duration = Duration::from_secs(30);

/// Every kind of operation that a metric of the list counts.
const OPERATIONS: &[(&str, &str)] = &[
    ("Put", r#"key: "a" value: "1""#),
    ("Put", r#"key: "a" value: "2""#),
    ("Put", r#"key: "b" value: "1""#),
    ("Range", r#"key: "a""#),
    (
        "Txn",
        r#"success { request_put { key: "c" value: "1" } } success { request_put { key: "d" value: "1" } }"#,
    ),
    ("DeleteRange", r#"key: "b""#),
    ("LeaseGrant", "ID: 7 TTL: 60"),
    ("LeaseRevoke", "ID: 7"),
    ("HashKV", ""),
    ("Hash", ""),
    ("Compact", "revision: 4 physical: true"),
    ("Defragment", ""),
];

fn rows(when: &[&str]) -> Vec<Row> {
    let mut all = metrics::list(include_str!("../metrics/must.txt"));
    all.retain(|row| when.contains(&row.when.as_str()));
    assert!(!all.is_empty());
    all
}

fn kinds() -> Vec<Kind> {
    let mut kinds = vec![Kind::Tenon];
    if oracle("etcd").is_some() {
        kinds.push(Kind::Etcd);
    } else {
        eprintln!("SKIPPED: no oracle to hold the list against");
    }
    kinds
}

fn flags() -> Vec<String> {
    ["--metrics=extensive", "--warning-apply-duration=1ns"]
        .map(str::to_owned)
        .to_vec()
}

async fn page(url: &str) -> Page {
    let text = web::metrics_page(url).await.expect("a page");
    metrics::read(&text).expect("Prometheus' format")
}

/// What is wrong with a page, by what stood there before.
fn wrong(rows: &[Row], before: &Page, now: &Page) -> Vec<String> {
    let judge = |row: &Row| match (row.check(now), row.when.as_str()) {
        (Err(why), _) => Some(why),
        (Ok(_), "there") => None,
        (Ok(value), "some") => (value <= 0.0).then(|| format!("{} is {value}", row.name)),
        (Ok(value), _) => {
            let past = before.get(&row.name).map_or(0.0, |family| family.total);
            (value <= past).then(|| format!("{} did not move from {past}", row.name))
        }
    };
    rows.iter().filter_map(judge).collect()
}

/// Waits until nothing is wrong with the page of `url`.
async fn until_right(kind: Kind, url: &str, rows: &[Row], before: &Page) {
    let deadline = Instant::now() + MOVES_WITHIN;
    loop {
        let wrong = wrong(rows, before, &page(url).await);
        if wrong.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{kind:?}: {wrong:#?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_member_has_what_dashboards_ask_for() {
    let schema = Schema::load().expect("schemas");
    for kind in kinds() {
        let mut group = Group::alone(kind, &flags()).expect("starts");
        group.wait_ready(&schema, 0).await.expect("answers");
        let url = group.servers[0].url();
        let before = page(&url).await;
        for (method, request) in OPERATIONS {
            let answer = group.ask(&schema, 0, method, request).await;
            answer.unwrap_or_else(|status| panic!("{kind:?} {method}: {status}"));
        }
        let rows = match kind {
            Kind::Tenon => rows(&["there", "some", "moves", "syncs"]),
            Kind::Etcd => rows(&["there", "some", "moves"]),
        };
        until_right(kind, &url, &rows, &before).await;
    }
}

#[tokio::test]
async fn members_tell_of_their_peers() {
    let schema = Schema::load().expect("schemas");
    for kind in kinds() {
        let mut group = Group::cluster(kind, 3, &flags()).expect("starts");
        group.settle(&schema).await.expect("a cluster");
        let urls: Vec<String> = group.servers.iter().map(|s| s.url()).collect();
        let mut before = Vec::new();
        for url in &urls {
            before.push(page(url).await);
        }
        for at in 0..3 {
            let put = group
                .ask(&schema, at, "Put", r#"key: "a" value: "1""#)
                .await;
            put.unwrap_or_else(|status| panic!("{kind:?}: {status}"));
        }
        for (url, before) in urls.iter().zip(&before) {
            until_right(kind, url, &rows(&["peers"]), before).await;
        }
        // The first of the group leads.
        until_right(kind, &urls[0], &rows(&["leader"]), &before[0]).await;
        let whole = page(&urls[0]).await;
        group.servers[2].kill();
        until_right(kind, &urls[0], &rows(&["broken"]), &whole).await;
    }
}
