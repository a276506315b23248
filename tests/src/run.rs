//! Room `tests`: runs one oracle script on fresh servers and gives back what each command answered.
//! May touch processes and sockets through the modules beside it; must not compare (the test does).
//!
//! Commands (requests in protobuf text format, see `expand` for `$…`):
//! - only as the first command: `server FLAG…`: extra flags; `cluster N FLAG…`: N members `m1`… of which the
//!   first leads; their ids are `$m1`, their addresses `$url_m1` and `$peer_m1`.
//! - `Method request [-> name=field.path, …]`: a call; a server's stream is read to its end.
//! - `with key=value Method …`: the call carries this metadata.
//! - `times N Method …`: N calls in turn, `%i` counting; the last answer.
//! - `parallel C N Method …`: N calls from each of C clients; their revisions.
//! - `until N Method …`: calls in turn until one fails, at most N; the failure.
//! - `open s Method`, `send s request`, `recv s N [within MS]`, `silent s`, `drain s` (all
//!   events to come), `finish s` (send no more), `drop s`.
//! - before `recv`, `ctl` or a call: `sorted` (the order does not matter), `counted` (lists by their length),
//!   `brief` (only whether it went well), `unnumbered` (without the header's revision).
//! - before any of these: `at m2` asks that member, `at all` (etcdctl only) all of them; `soon` repeats it until
//!   it goes well; `seen WORD` repeats it until its answer holds the word.
//! - `ctl …`, `start …`, `lines …`, `stop …`: real etcdctl, see `ctl`.
//! - `http METHOD PATH`, `metrics NAME…`: plain HTTP, see `web`.
//! - `begin p Method …`, `answer p`: a call that goes on while the script does.
//! - `sleep MS`, `restart` (SIGTERM), `kill` (SIGKILL); both start again on the same directory.
//! - `down m2` (SIGKILL), `invite m4` (a further member, not started), `up m4` (starts it), `ended m4` (waits for
//!   its end), `pause m2` (SIGSTOP), `resume m2`, `settle` (waits until all follow `m1` again).

use crate::call::{self, Metadata};
use crate::ctl::{self, Ctl};
use crate::expand::{Names, expand};
use crate::group::Group;
use crate::manner::Manner;
use crate::parallel::{self, Repeated};
use crate::print::{self, Detail};
use crate::receive::{Order, RECV_MAX, SILENCE, arrival_lines, drain, receive};
use crate::schema::Schema;
use crate::script::{Command, Item};
use crate::server::Kind;
use crate::stream::Stream;
use crate::web;
use prost_reflect::{DynamicMessage, MethodDescriptor, Value};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tonic::transport::Channel;

pub use crate::group::{until_ready, wait_ready};

/// How long a call may take.
const CALL_MAX: Duration = Duration::from_secs(20);
/// How long `soon` and `seen` try, and their pauses.
const SOON_MAX: Duration = Duration::from_secs(20);
const SOON_PAUSE: Duration = Duration::from_millis(100);

/// What each command answered, in order of the script's commands.
pub type Answers = Vec<Vec<String>>;

/// Where a script that names no cluster runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// On one server.
    Alone,
    /// On three, asked through the one that leads.
    Leader,
    /// On three, asked through one that follows.
    Follower,
}

/// Runs all commands of `items` on fresh servers of `kind`.
///
/// # Errors
/// Why the script could not be run; a wrong answer is not an error here.
pub async fn run(
    schema: &Schema,
    kind: Kind,
    place: Place,
    items: &[Item],
) -> Result<Answers, String> {
    let commands: Vec<&Command> = items
        .iter()
        .filter_map(|item| match item {
            Item::Command(command) => Some(command),
            Item::Story(_) => None,
        })
        .collect();
    let first = commands.first().map(|c| c.joined()).unwrap_or_default();
    let mut words = first.split_whitespace();
    let named = words.next().unwrap_or_default();
    let size = match named {
        "cluster" => number(words.next().unwrap_or_default())?,
        _ => 3,
    };
    let flags: Vec<String> = match named {
        "server" | "cluster" => words.map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    let group = if named == "cluster" || place != Place::Alone {
        Group::cluster(kind, size, &flags)?
    } else {
        Group::alone(kind, &flags)?
    };
    let mut session = Session::new(schema.clone(), group).await?;
    session.begin(named == "cluster", place).await?;
    let mut answers = Vec::with_capacity(commands.len());
    for command in commands {
        let line = command.joined();
        let result = session
            .step(&line)
            .await
            .map_err(|e| format!("line {}: {e}", command.line));
        answers.push(result?.iter().map(|text| session.mask(text)).collect());
    }
    Ok(answers)
}

/// A script being run.
struct Session {
    schema: Schema,
    group: Group,
    /// The member that is asked.
    asked: usize,
    /// etcdctl is given every member's address.
    all: bool,
    names: Names,
    streams: BTreeMap<String, Stream>,
    methods: BTreeMap<String, MethodDescriptor>,
    ctl: Ctl,
    begun: BTreeMap<String, JoinHandle<Vec<String>>>,
}

impl Session {
    async fn new(schema: Schema, mut group: Group) -> Result<Self, String> {
        for at in 0..group.servers.len() {
            group.wait_ready(&schema, at).await?;
        }
        let (names, streams, methods) = (Names::default(), BTreeMap::new(), BTreeMap::new());
        Ok(Self {
            schema,
            group,
            asked: 0,
            all: false,
            names,
            streams,
            methods,
            ctl: Ctl::default(),
            begun: BTreeMap::new(),
        })
    }

    /// Names for what differs from server to server, and who is asked.
    async fn begin(&mut self, is_cluster: bool, place: Place) -> Result<(), String> {
        if self.group.servers.len() > 1 {
            let ids = self.group.settle(&self.schema).await?;
            for (at, id) in ids.iter().enumerate() {
                if is_cluster {
                    self.name_seat(at);
                    self.names.set(&format!("m{}", at + 1), i128::from(*id));
                } else {
                    // Whoever leads is "the member" of a script that knows only one.
                    self.names.alias("member", i128::from(*id));
                }
            }
        }
        self.asked = usize::from(!is_cluster && place == Place::Follower);
        if !is_cluster {
            let server = &self.group.servers[self.asked];
            self.names.set_text("client_url", server.url());
            self.names.set_text("peer_url", server.peer_url());
        }
        let member = if is_cluster {
            ""
        } else {
            "member=header.member_id, "
        };
        self.step(&format!("MemberList -> {member}cluster=header.cluster_id"))
            .await?;
        Ok(())
    }

    fn name_seat(&mut self, at: usize) {
        let seat = self.group.servers[at].seat();
        self.names
            .set_text(&format!("url_{}", seat.name), seat.url.clone());
        self.names
            .set_text(&format!("peer_{}", seat.name), seat.peer_url.clone());
    }

    fn mask(&self, answer: &str) -> String {
        // Go's protobuf text has one blank or two here, by build.
        self.names.mask(answer).replace("  alarm:", " alarm:")
    }

    async fn step(&mut self, line: &str) -> Result<Vec<String>, String> {
        let (manner, command) = Manner::read(line, &self.names)?;
        let usual = self.asked;
        self.all = manner.asked.as_deref() == Some("all");
        if let Some(name) = manner.asked.as_deref().filter(|_| !self.all) {
            self.asked = self.group.find(name)?;
        }
        let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
        let answer = self.repeat(verb, rest, &manner).await;
        (self.asked, self.all) = (usual, false);
        let mut answer = answer?;
        if verb == "ctl" && manner.order == Order::Sorted {
            answer = answer.iter().map(|line| self.mask(line)).collect();
            answer.sort();
        }
        Ok(answer)
    }

    async fn repeat(
        &mut self,
        verb: &str,
        rest: &str,
        manner: &Manner,
    ) -> Result<Vec<String>, String> {
        let deadline = Instant::now() + SOON_MAX;
        loop {
            let lines = self.verb(verb, rest, manner).await?;
            match &manner.until {
                Some(until) if !until.is_met(&lines) && Instant::now() < deadline => {}
                _ => return Ok(lines),
            }
            tokio::time::sleep(SOON_PAUSE).await;
        }
    }

    async fn verb(
        &mut self,
        verb: &str,
        rest: &str,
        manner: &Manner,
    ) -> Result<Vec<String>, String> {
        match verb {
            "server" | "cluster" => Ok(Vec::new()),
            "sleep" => {
                tokio::time::sleep(Duration::from_millis(number(rest)?)).await;
                Ok(Vec::new())
            }
            "restart" | "kill" => {
                self.streams.clear();
                self.group.start_again(&self.schema, self.asked, verb).await
            }
            "down" | "invite" | "up" | "ended" | "pause" | "resume" | "settle" => {
                let answer = self.group.change(&self.schema, verb, rest).await;
                if verb == "invite" {
                    self.name_seat(self.group.find(rest)?);
                }
                answer
            }
            "begin" => self.begin_call(rest, manner).await,
            "answer" => {
                let begun = self.begun.remove(rest);
                let begun = begun.ok_or_else(|| format!("no call {rest}"))?;
                begun.await.map_err(|e| e.to_string())
            }
            "times" => self.times(rest, manner).await,
            "until" => self.until(rest, manner).await,
            "parallel" => self.parallel(rest, manner).await,
            "http" => web::request(&self.url(), rest).await,
            "metrics" => web::metrics(&self.url(), rest).await,
            "ctl" | "start" | "lines" | "stop" => self.etcdctl(verb, rest).await,
            "open" | "send" | "recv" | "drain" | "silent" | "finish" | "drop" => {
                self.stream(verb, rest, manner).await
            }
            method => {
                let method = self.schema.method(method)?;
                self.call(method, rest, manner).await
            }
        }
    }

    fn url(&self) -> String {
        self.group.servers[self.asked].url()
    }

    async fn etcdctl(&mut self, verb: &str, rest: &str) -> Result<Vec<String>, String> {
        let url = if self.all {
            self.group.endpoints()
        } else {
            self.url()
        };
        let rest = expand(rest, &self.names)?;
        if verb == "ctl" {
            let (args, capture) = rest.rsplit_once(" -> ").unwrap_or((&rest, ""));
            let lines = self.ctl.run(&url, args).await?;
            // A failed command has nothing to remember; whoever needs the name finds that out.
            if let Some((name, place)) = capture.split_once('=')
                && let Ok(value) = ctl::hex_word(&lines, place)
            {
                self.names.set(name, value);
            }
            return Ok(lines);
        }
        let (name, rest) = rest.split_once(' ').unwrap_or((&rest, ""));
        match verb {
            "start" => self.ctl.start(&url, name, rest)?,
            "lines" => return self.ctl.lines(name, number(rest)?).await,
            _ => self.ctl.stop(name),
        }
        Ok(Vec::new())
    }

    /// A call, and what it remembers.
    async fn call(
        &mut self,
        method: MethodDescriptor,
        rest: &str,
        manner: &Manner,
    ) -> Result<Vec<String>, String> {
        let (text, captures) = rest.rsplit_once("-> ").unwrap_or((rest, ""));
        let request = Schema::request(method.input(), &expand(text, &self.names)?)?;
        let channel = self.group.channel(self.asked).await?;
        if method.is_server_streaming() {
            let mut stream = Stream::open(channel, method, manner.metadata.clone());
            stream.send(request)?;
            stream.finish();
            let (detail, order) = (manner.detail, manner.order);
            return Ok(receive(&mut stream, usize::MAX, detail, order, CALL_MAX).await);
        }
        let answer = unary(&channel, &method, &manner.metadata, request).await;
        if let Ok(answer) = &answer {
            for capture in captures.split(',').map(str::trim).filter(|c| !c.is_empty()) {
                let (name, path) = capture.split_once('=').ok_or("capture: no =")?;
                self.names.set(name, field_at(answer, path)?);
            }
        }
        Ok(told(answer, manner))
    }

    async fn begin_call(&mut self, rest: &str, manner: &Manner) -> Result<Vec<String>, String> {
        let (name, rest) = rest.split_once(' ').ok_or("begin p Method")?;
        let (method, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let method = self.schema.method(method)?;
        let request = Schema::request(method.input(), &expand(text, &self.names)?)?;
        let channel = self.group.channel(self.asked).await?;
        let manner = manner.clone();
        let call = tokio::spawn(async move {
            let answer = unary(&channel, &method, &manner.metadata, request).await;
            told(answer, &manner)
        });
        self.begun.insert(name.to_owned(), call);
        Ok(Vec::new())
    }

    async fn times(&mut self, rest: &str, manner: &Manner) -> Result<Vec<String>, String> {
        let (count, rest) = rest.split_once(' ').ok_or("times N Method")?;
        let count = number(count)?;
        match self.repeated(rest, manner).await?.in_turn(count).await {
            Ok(answer) => Ok(print::message(&answer, Detail::Full)),
            Err(status) => Ok(vec![print::status(&status)]),
        }
    }

    async fn until(&mut self, rest: &str, manner: &Manner) -> Result<Vec<String>, String> {
        let (count, rest) = rest.split_once(' ').ok_or("until N Method")?;
        match self
            .repeated(rest, manner)
            .await?
            .in_turn(number(count)?)
            .await
        {
            Ok(_) => Ok(vec!["never".to_owned()]),
            Err(status) => Ok(vec![print::status(&status)]),
        }
    }

    async fn parallel(&mut self, rest: &str, manner: &Manner) -> Result<Vec<String>, String> {
        let (clients, rest) = rest.split_once(' ').ok_or("parallel C N Method")?;
        let (count, rest) = rest.split_once(' ').ok_or("parallel C N Method")?;
        let repeated = self.repeated(rest, manner).await?;
        match repeated.at_once(number(clients)?, number(count)?).await {
            Ok(revisions) => Ok(vec![parallel::describe(&revisions)]),
            Err(status) => Ok(vec![print::status(&status)]),
        }
    }

    async fn repeated(&mut self, rest: &str, manner: &Manner) -> Result<Repeated, String> {
        let (method, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let (method, text) = (self.schema.method(method)?, expand(text, &self.names)?);
        Ok(Repeated {
            channel: self.group.channel(self.asked).await?,
            method,
            metadata: manner.metadata.clone(),
            text,
        })
    }

    async fn stream(
        &mut self,
        verb: &str,
        rest: &str,
        manner: &Manner,
    ) -> Result<Vec<String>, String> {
        let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        if verb == "open" {
            let method = self.schema.method(rest)?;
            self.methods.insert(name.to_owned(), method.clone());
            let channel = self.group.channel(self.asked).await?;
            let stream = Stream::open(channel, method, manner.metadata.clone());
            self.streams.insert(name.to_owned(), stream);
            return Ok(Vec::new());
        }
        let stream = self
            .streams
            .get_mut(name)
            .ok_or_else(|| format!("no stream {name}"))?;
        match verb {
            "send" => {
                let text = expand(rest, &self.names)?;
                stream.send(Schema::request(self.methods[name].input(), &text)?)?;
                Ok(Vec::new())
            }
            "recv" => {
                let (count, wait) = rest.split_once(" within ").unwrap_or((rest, ""));
                let wait = if wait.is_empty() {
                    RECV_MAX
                } else {
                    Duration::from_millis(number(wait)?)
                };
                let (detail, order) = (manner.detail, manner.order);
                Ok(receive(stream, number(count)?, detail, order, wait).await)
            }
            "drain" => drain(stream, &self.methods[name]).await,
            "silent" => Ok(match stream.next(SILENCE).await {
                None => Vec::new(),
                Some(arrival) => arrival_lines(&arrival, manner.detail),
            }),
            "finish" => {
                stream.finish();
                Ok(Vec::new())
            }
            _ => {
                self.streams.remove(name);
                Ok(Vec::new())
            }
        }
    }
}

/// One call, for a bounded time.
async fn unary(
    channel: &Channel,
    method: &MethodDescriptor,
    metadata: &Metadata,
    request: DynamicMessage,
) -> Result<DynamicMessage, String> {
    let call = call::unary(channel, method, metadata, request);
    match tokio::time::timeout(CALL_MAX, call).await {
        Err(_) => Err(format!("no answer within {} s", CALL_MAX.as_secs())),
        Ok(answer) => answer.map_err(|status| print::status(&status)),
    }
}

fn told(answer: Result<DynamicMessage, String>, manner: &Manner) -> Vec<String> {
    let mut lines = match answer {
        Ok(answer) => print::message(&answer, manner.detail),
        Err(text) => vec![text],
    };
    if manner.order == Order::Sorted {
        lines.sort();
    }
    lines
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.trim()
        .parse()
        .map_err(|_| format!("not a number: {text:?}"))
}

/// The integer at `a.b.c` of a message; a list is stepped into at its first element.
fn field_at(message: &DynamicMessage, path: &str) -> Result<i128, String> {
    let missing = || format!("answer has no {path}");
    let mut value = Value::Message(message.clone());
    for name in path.split('.') {
        let Value::Message(inner) = &value else {
            return Err(missing());
        };
        let mut field = inner
            .get_field_by_name(name)
            .ok_or_else(missing)?
            .into_owned();
        if let Value::List(list) = field {
            field = list.first().cloned().ok_or_else(missing)?;
        }
        value = field;
    }
    match value {
        Value::I64(v) => Ok(v.into()),
        Value::U64(v) => Ok(v.into()),
        Value::I32(v) => Ok(v.into()),
        Value::U32(v) => Ok(v.into()),
        _ => Err(missing()),
    }
}
