//! Tenon inside a program of one's own: four hosts in one process, three that found a cluster and one that begins as a
//! client. One of the three is demoted, the fourth promoted, and one is closed and opened again, while a workload goes
//! through the endpoint of a host that switches, and checks itself: every write succeeds, and the watch tells every
//! write once and in order.
//!
//! `cargo run --example embedded_control_plane`; CI runs it as a test (`cargo test --example embedded_control_plane`).

#![allow(clippy::disallowed_methods, reason = "an application, above the shell")]

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tenon_server::host::local::LocalClient;
use tenon_server::host::{ChangeOptions, Mode};
use tenon_server::shell::embedded::{Embedded, Options};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;

/// etcd's messages, as the in-process client takes them.
use tenon_proto::etcdserverpb as pb;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Where a host listens.
#[derive(Clone)]
struct Seat {
    name: &'static str,
    client: String,
    peer: String,
}

/// Seats on ports that were free a moment ago.
fn seats() -> Result<Vec<Seat>, Failure> {
    let mut listeners = Vec::new();
    let mut url = || -> Result<String, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}", listener.local_addr()?);
        listeners.push(listener);
        Ok(url)
    };
    let names = ["a", "b", "c", "d"].into_iter();
    let seat = names.map(|name| {
        Ok(Seat {
            name,
            client: url()?,
            peer: url()?,
        })
    });
    seat.collect()
}

/// The flags of `tenon serve` are an embedded host's options.
fn options(dir: &Path, seat: &Seat, founders: &[Seat]) -> Result<Options, Failure> {
    let mut flags = vec![
        format!("--name={}", seat.name),
        format!("--data-dir={}", dir.join(seat.name).display()),
        format!("--listen-client-urls={}", seat.client),
        format!("--advertise-client-urls={}", seat.client),
        format!("--listen-peer-urls={}", seat.peer),
        format!("--initial-advertise-peer-urls={}", seat.peer),
    ];
    if founders.iter().any(|founder| founder.name == seat.name) {
        let all = founders.iter().map(|f| format!("{}={}", f.name, f.peer));
        let all: Vec<String> = all.collect();
        flags.push(format!("--initial-cluster={}", all.join(",")));
    } else {
        let urls: Vec<&str> = founders.iter().map(|f| f.client.as_str()).collect();
        flags.push(format!("--initial-cluster={}={}", seat.name, seat.peer));
        flags.push("--mode=client".to_owned());
        flags.push(format!("--endpoints={}", urls.join(",")));
    }
    Ok(Options::from_flags(flags)?)
}

/// Writes numbers until it is told to stop; how many.
async fn write(client: LocalClient, stop: Arc<AtomicBool>) -> Result<u64, Failure> {
    for n in 0.. {
        if stop.load(Ordering::SeqCst) {
            return Ok(n);
        }
        let put = pb::PutRequest {
            key: "example/n".into(),
            value: n.to_string().into(),
            ..pb::PutRequest::default()
        };
        let put = tokio::time::timeout(Duration::from_secs(5), client.put(put));
        put.await?
            .map_err(|error| format!("write {n} failed: {error}"))?;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    unreachable!("it is told to stop")
}

/// Follows the key from now on; completes when all of `total` numbers were told, once and in order.
async fn follow(
    client: &LocalClient,
) -> Result<(mpsc::Sender<u64>, JoinHandle<Result<(), Failure>>), Failure> {
    let (ask, requests) = tenon_env::sync::mpsc::channel(1);
    let create = pb::WatchCreateRequest {
        key: "example/n".into(),
        ..pb::WatchCreateRequest::default()
    };
    let union = pb::watch_request::RequestUnion::CreateRequest(create);
    ask.send(pb::WatchRequest {
        request_union: Some(union),
    })
    .await?;
    let mut answers = client.watch(requests)?;
    let created = answers.next().await.ok_or("the watch ended")??;
    assert!(created.created, "{created:?}");
    let (total, mut told) = mpsc::channel(1);
    let following = tokio::spawn(async move {
        let _open = ask;
        let (mut next, mut total) = (0u64, None);
        while total != Some(next) {
            let answer = tokio::select! {
                known = told.recv(), if total.is_none() => {
                    total = Some(known.ok_or("nobody says how many")?);
                    continue;
                }
                answer = tokio::time::timeout(Duration::from_secs(20), answers.next()) => answer,
            };
            let answer = answer.map_err(|_| format!("the watch waits for {next} of {total:?}"))?;
            for event in answer.ok_or("the watch ended")??.events {
                let value = event.kv.unwrap_or_default().value;
                if value != next.to_string() {
                    return Err(format!("the watch tells {value:?} instead of {next}").into());
                }
                next += 1;
            }
        }
        Ok(())
    });
    Ok((total, following))
}

/// Switches a host and shows its steps.
async fn switch(name: &str, host: &Embedded, to: Mode) -> Result<(), Failure> {
    let change = host.change_mode(to, ChangeOptions::default()).await?;
    let mut progress = change.progress();
    let shown = name.to_owned();
    let show = tokio::spawn(async move {
        let mut last = None;
        while progress.changed().await.is_ok() {
            let step = progress
                .borrow_and_update()
                .progress
                .clone()
                .map(|p| p.step);
            if step.is_some() && step != last {
                println!("{shown}: {}", step.map_or("", |step| step.name()));
            }
            last = step;
        }
    });
    let outcome = change.await;
    show.abort();
    outcome?;
    println!("{name}: {}", host.status().borrow().note);
    Ok(())
}

async fn story(dir: &Path) -> Result<(), Failure> {
    let seats = seats()?;
    let founders = &seats[..3];
    let open = |at: usize| {
        let options = options(dir, &seats[at], founders);
        async move { Ok::<_, Failure>(Embedded::open(options?).await?) }
    };
    let (a, b, c) = tokio::try_join!(open(0), open(1), open(2))?;
    for host in [&a, &b, &c] {
        host.initialized().await;
    }
    let d = open(3).await?;
    d.initialized().await;
    assert_eq!(d.status().borrow().mode, Mode::Client);
    println!("the leader is {:?}", a.leader());

    let client = b.client();
    let (total, following) = follow(&client).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn(write(client, stop.clone()));
    switch("b", &b, Mode::Client).await?;
    switch("d", &d, Mode::Server).await?;

    // What goes wrong is told: a server cannot be aborted where nothing is under way, and the host says so.
    assert!(b.host().abort().await.is_err());
    // One host leaves the process and comes back in it; the others go on.
    c.shutdown().await;
    let c = open(2).await?;
    c.initialized().await;

    switch("b", &b, Mode::Server).await?;
    stop.store(true, Ordering::SeqCst);
    let writes = writing.await??;
    total.send(writes).await?;
    following.await??;
    println!("{writes} writes, each told once");

    let client = a.client();
    let request = pb::MemberListRequest { linearizable: true };
    let members = client.member_list(request).await?.members;
    assert_eq!(members.len(), 4, "a, b, c and d vote: {members:?}");
    for host in [&a, &b, &c, &d] {
        host.shutdown().await;
    }
    Ok(())
}

fn run() -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(story(dir.path()))
}

fn main() -> Result<(), Failure> {
    run()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_story_holds() {
        if let Err(failure) = super::run() {
            panic!("{failure}");
        }
    }
}
