//! Room `tests`: runs one oracle script on one fresh server and gives back what each command answered.
//! May touch processes and sockets through the modules beside it; must not compare (the test does).
//!
//! Commands (requests in protobuf text format, see `expand` for `$…`):
//! - `server FLAG…`: only as the first command: extra flags of the server.
//! - `Method request [-> name=field.path, …]`: a call; a server's stream is read to its end.
//! - `with key=value Method …`: the call carries this metadata.
//! - `times N Method …`: N calls in turn, `%i` counting; the last answer.
//! - `parallel C N Method …`: N calls from each of C clients; their revisions.
//! - `until N Method …`: calls in turn until one fails, at most N; the failure.
//! - `open s Method`, `send s request`, `recv s N [within MS]`, `silent s`, `drain s` (all
//!   events to come), `finish s` (send no more), `drop s`.
//! - before `recv` or a call: `sorted` (the order does not matter), `counted` (lists by their length),
//!   `brief` (only whether it went well), `unnumbered` (without the header's revision).
//! - `ctl …`, `start …`, `lines …`, `stop …`: real etcdctl, see `ctl`.
//! - `http METHOD PATH`, `metrics NAME…`: plain HTTP, see `web`.
//! - `sleep MS`, `restart` (SIGTERM), `kill` (SIGKILL); both start again on the same directory.

use crate::call::{self, Metadata};
use crate::ctl::{self, Ctl};
use crate::expand::{Names, expand};
use crate::parallel::{self, Repeated};
use crate::print::{self, Detail};
use crate::schema::Schema;
use crate::script::{Command, Item};
use crate::server::{Kind, Server};
use crate::stream::{Arrival, Stream};
use crate::web;
use prost_reflect::{DynamicMessage, MethodDescriptor, Value};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tonic::transport::Channel;

/// How long a call may take.
const CALL_MAX: Duration = Duration::from_secs(20);
/// How long `recv` waits for each message unless told.
const RECV_MAX: Duration = Duration::from_secs(8);
/// How long `silent` listens.
const SILENCE: Duration = Duration::from_millis(400);
/// How long a server may take until it answers.
const READY_MAX: Duration = Duration::from_secs(30);

/// What a command answered, in order of the script's commands.
pub type Answers = Vec<Vec<String>>;

/// Runs all commands of `items` on a fresh server of `kind`.
///
/// # Errors
/// Why the script could not be run; a wrong answer is not an error here.
pub async fn run(schema: &Schema, kind: Kind, items: &[Item]) -> Result<Answers, String> {
    let commands: Vec<&Command> = items
        .iter()
        .filter_map(|item| match item {
            Item::Command(command) => Some(command),
            Item::Story(_) => None,
        })
        .collect();
    let flags = match commands.first() {
        Some(first) if first.text[0].starts_with("server ") => first.joined(),
        _ => String::new(),
    };
    let flags: Vec<String> = flags
        .split_whitespace()
        .skip(1)
        .map(str::to_owned)
        .collect();
    let server = Server::start(kind, &flags)?;
    let mut session = Session::new(schema.clone(), server).await?;
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

/// Waits until `server` answers a linearizable read.
///
/// # Errors
/// When the process ends or does not answer within 30 s.
pub async fn wait_ready(schema: &Schema, server: &mut Server) -> Result<Channel, String> {
    let method = schema.method("Range")?;
    let deadline = Instant::now() + READY_MAX;
    loop {
        server.check_running()?;
        let failed = match call::connect(&server.url()).await {
            Err(error) => error,
            Ok(channel) => {
                let request = Schema::request(method.input(), "key: \"\\000\"")?;
                match call::unary(&channel, &method, &Metadata::new(), request).await {
                    Ok(_) => return Ok(channel),
                    Err(status) => print::status(&status),
                }
            }
        };
        if Instant::now() > deadline {
            return Err(format!(
                "server does not answer: {failed}; log: {}",
                server.log_end()
            ));
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

/// A script being run.
struct Session {
    schema: Schema,
    server: Server,
    channel: Channel,
    names: Names,
    streams: BTreeMap<String, Stream>,
    methods: BTreeMap<String, MethodDescriptor>,
    ctl: Ctl,
}

/// How a command wants its answer.
#[derive(Clone, Copy)]
struct Manner {
    detail: Detail,
    sorted: bool,
}

impl Session {
    async fn new(schema: Schema, mut server: Server) -> Result<Self, String> {
        let channel = wait_ready(&schema, &mut server).await?;
        let (names, streams, methods) = (Names::default(), BTreeMap::new(), BTreeMap::new());
        let mut session = Self {
            schema,
            server,
            channel,
            names,
            streams,
            methods,
            ctl: Ctl::default(),
        };
        session
            .step("MemberList -> member=header.member_id, cluster=header.cluster_id")
            .await?;
        Ok(session)
    }

    /// Names for what differs from server to server.
    fn mask(&self, answer: &str) -> String {
        let answer = self
            .names
            .mask(answer)
            .replace(&self.server.url(), "$client_url");
        // Go's protobuf text has one blank or two here, by build.
        answer
            .replace(&self.server.peer_url(), "$peer_url")
            .replace("  alarm:", " alarm:")
    }

    async fn step(&mut self, line: &str) -> Result<Vec<String>, String> {
        let mut manner = Manner {
            detail: Detail::Full,
            sorted: false,
        };
        let mut metadata = Metadata::new();
        let mut rest = line;
        loop {
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            match word {
                "sorted" => manner.sorted = true,
                "counted" => manner.detail = Detail::Counted,
                "unnumbered" => manner.detail = Detail::Unnumbered,
                "brief" => manner.detail = Detail::Brief,
                "with" => {
                    let (pair, after) = after.split_once(' ').ok_or("with: no call")?;
                    let (key, value) = pair.split_once('=').ok_or("with: no =")?;
                    metadata.push((key.to_owned(), value.to_owned()));
                    rest = after;
                    continue;
                }
                _ => return self.verb(word, after, manner, metadata).await,
            }
            rest = after;
        }
    }

    async fn verb(
        &mut self,
        verb: &str,
        rest: &str,
        manner: Manner,
        metadata: Metadata,
    ) -> Result<Vec<String>, String> {
        match verb {
            "server" => Ok(Vec::new()),
            "sleep" => {
                tokio::time::sleep(Duration::from_millis(number(rest)?)).await;
                Ok(Vec::new())
            }
            "restart" | "kill" => self.start_again(verb).await,
            "times" => self.times(rest, metadata).await,
            "until" => self.until(rest, metadata).await,
            "parallel" => self.parallel(rest, metadata).await,
            "http" => web::request(&self.server.url(), rest).await,
            "metrics" => web::metrics(&self.server.url(), rest).await,
            "ctl" | "start" | "lines" | "stop" => self.etcdctl(verb, rest).await,
            "open" | "send" | "recv" | "drain" | "silent" | "finish" | "drop" => {
                self.stream(verb, rest, manner, metadata).await
            }
            method => {
                let method = self.schema.method(method)?;
                self.call(method, rest, manner, metadata).await
            }
        }
    }

    async fn start_again(&mut self, verb: &str) -> Result<Vec<String>, String> {
        self.streams.clear();
        let mut lines = Vec::new();
        if verb == "kill" {
            self.server.kill();
        } else {
            let code = self.server.stop();
            // etcd ends by re-raising the signal after its clean stop; both are clean.
            let clean = code == Some(0) || (self.server.kind() == Kind::Etcd && code.is_none());
            lines.push(if clean {
                "stopped".to_owned()
            } else {
                format!("exit {code:?}")
            });
        }
        self.server.spawn()?;
        self.channel = wait_ready(&self.schema, &mut self.server).await?;
        Ok(lines)
    }

    async fn etcdctl(&mut self, verb: &str, rest: &str) -> Result<Vec<String>, String> {
        let url = self.server.url();
        let rest = expand(rest, &self.names)?;
        if verb == "ctl" {
            let (args, capture) = rest.rsplit_once(" -> ").unwrap_or((&rest, ""));
            let lines = self.ctl.run(&url, args).await?;
            if let Some((name, place)) = capture.split_once('=') {
                self.names.set(name, ctl::hex_word(&lines, place)?);
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
        manner: Manner,
        metadata: Metadata,
    ) -> Result<Vec<String>, String> {
        let (text, captures) = rest.rsplit_once("-> ").unwrap_or((rest, ""));
        let request = Schema::request(method.input(), &expand(text, &self.names)?)?;
        if method.is_server_streaming() {
            let mut stream = Stream::open(self.channel.clone(), method, metadata);
            stream.send(request)?;
            stream.finish();
            return Ok(receive(&mut stream, usize::MAX, manner, CALL_MAX).await);
        }
        let call = call::unary(&self.channel, &method, &metadata, request);
        match tokio::time::timeout(CALL_MAX, call).await {
            Err(_) => Ok(vec![format!("no answer within {} s", CALL_MAX.as_secs())]),
            Ok(Err(status)) => Ok(vec![print::status(&status)]),
            Ok(Ok(answer)) => {
                for capture in captures.split(',').map(str::trim).filter(|c| !c.is_empty()) {
                    let (name, path) = capture.split_once('=').ok_or("capture: no =")?;
                    self.names.set(name, field_at(&answer, path)?);
                }
                let mut lines = print::message(&answer, manner.detail);
                if manner.sorted {
                    lines.sort();
                }
                Ok(lines)
            }
        }
    }

    async fn times(&self, rest: &str, metadata: Metadata) -> Result<Vec<String>, String> {
        let (count, rest) = rest.split_once(' ').ok_or("times N Method")?;
        let count = number(count)?;
        match self.repeated(rest, metadata)?.in_turn(count).await {
            Ok(answer) => Ok(print::message(&answer, Detail::Full)),
            Err(status) => Ok(vec![print::status(&status)]),
        }
    }

    async fn until(&self, rest: &str, metadata: Metadata) -> Result<Vec<String>, String> {
        let (count, rest) = rest.split_once(' ').ok_or("until N Method")?;
        match self.repeated(rest, metadata)?.in_turn(number(count)?).await {
            Ok(_) => Ok(vec!["never".to_owned()]),
            Err(status) => Ok(vec![print::status(&status)]),
        }
    }

    async fn parallel(&self, rest: &str, metadata: Metadata) -> Result<Vec<String>, String> {
        let (clients, rest) = rest.split_once(' ').ok_or("parallel C N Method")?;
        let (count, rest) = rest.split_once(' ').ok_or("parallel C N Method")?;
        let repeated = self.repeated(rest, metadata)?;
        match repeated.at_once(number(clients)?, number(count)?).await {
            Ok(revisions) => Ok(vec![parallel::describe(&revisions)]),
            Err(status) => Ok(vec![print::status(&status)]),
        }
    }

    fn repeated(&self, rest: &str, metadata: Metadata) -> Result<Repeated, String> {
        let (method, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let (method, text) = (self.schema.method(method)?, expand(text, &self.names)?);
        Ok(Repeated {
            channel: self.channel.clone(),
            method,
            metadata,
            text,
        })
    }

    async fn stream(
        &mut self,
        verb: &str,
        rest: &str,
        manner: Manner,
        metadata: Metadata,
    ) -> Result<Vec<String>, String> {
        let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        if verb == "open" {
            let method = self.schema.method(rest)?;
            self.methods.insert(name.to_owned(), method.clone());
            let stream = Stream::open(self.channel.clone(), method, metadata);
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
                Ok(receive(stream, number(count)?, manner, wait).await)
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

/// The next `count` arrivals, each introduced by `--`.
async fn receive(stream: &mut Stream, count: usize, manner: Manner, wait: Duration) -> Vec<String> {
    let mut answers = Vec::new();
    for _ in 0..count {
        match stream.next(wait).await {
            None => {
                answers.push(vec![format!("-- nothing within {} ms", wait.as_millis())]);
                break;
            }
            Some(arrival) => {
                answers.push(arrival_lines(&arrival, manner.detail));
                if matches!(arrival, Arrival::End(_)) {
                    break;
                }
            }
        }
    }
    if manner.sorted {
        answers.sort();
    }
    answers.concat()
}

/// All events of a watch up to now, whatever responses they came in: it asks for progress, whose answer
/// comes after them, again and again (a watcher that is behind is not answered).
async fn drain(stream: &mut Stream, method: &MethodDescriptor) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    let deadline = Instant::now() + RECV_MAX;
    while Instant::now() < deadline {
        stream.send(Schema::request(method.input(), "progress_request { }")?)?;
        while let Some(arrival) = stream.next(SILENCE).await {
            let new = arrival_lines(&arrival, Detail::Full);
            if matches!(arrival, Arrival::End(_)) || new.iter().any(|line| line == "watch_id: -1") {
                return Ok(lines);
            }
            lines.extend(new.into_iter().filter(|line| line.starts_with("events")));
        }
    }
    Err("no progress".to_owned())
}

fn arrival_lines(arrival: &Arrival, detail: Detail) -> Vec<String> {
    match arrival {
        Arrival::End(None) => vec!["-- end".to_owned()],
        Arrival::End(Some(status)) => vec![format!("-- end: {}", print::status(status))],
        Arrival::Message(message) => {
            let mut lines = vec!["--".to_owned()];
            lines.extend(print::message(message, detail));
            lines
        }
    }
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
