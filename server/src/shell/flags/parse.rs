//! Room `server/shell`: the command line and the environment, read as Go's flag package and etcd read them.
//! Pure: the caller hands over arguments and variables.

use super::settings::{Exit, Settings};
use super::table::{EXPERIMENTAL, EXPERIMENTAL_GATES, FLAGS, Flag, OWN, find};
use super::value::{Kind, Value, read_bool};
use std::collections::{BTreeMap, BTreeSet};

/// Reads `args` (without the program's name).
pub fn read_args(args: &[String]) -> Result<Settings, Exit> {
    let mut settings = Settings::default();
    let mut rest = args.iter().peekable();
    while let Some(arg) = rest.peek() {
        if arg.len() < 2 || !arg.starts_with('-') {
            break;
        }
        let arg = rest.next().expect("peeked");
        if arg == "--" {
            break;
        }
        let body = arg
            .strip_prefix("--")
            .or_else(|| arg.strip_prefix('-'))
            .unwrap_or(arg);
        if body.is_empty() || body.starts_with('-') || body.starts_with('=') {
            return Err(Exit::Usage(format!("bad flag syntax: {arg}")));
        }
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        let target = Target::find(name)?;
        let value = match value {
            Some(value) => value,
            None if target.is_bool() => "true".to_owned(),
            None => match rest.next() {
                Some(value) => value.clone(),
                None => return Err(Exit::Usage(format!("flag needs an argument: -{name}"))),
            },
        };
        target.set(&mut settings, name, &value)?;
    }
    if let Some(stray) = rest.next() {
        return Err(Exit::Rejected(format!("{stray:?} is not a valid flag")));
    }
    check_aliases(args)?;
    Ok(settings)
}

/// What a name on the command line sets.
enum Target {
    Flag(&'static Flag),
    Gate(&'static str),
}

impl Target {
    fn find(name: &str) -> Result<Target, Exit> {
        if let Some(flag) = find(name) {
            return Ok(Target::Flag(flag));
        }
        if name == "help" || name == "h" {
            return Err(Exit::Help);
        }
        let unknown = || Exit::Usage(format!("flag provided but not defined: -{name}"));
        let old = name.strip_prefix("experimental-").ok_or_else(unknown)?;
        if let Some((_, gate)) = EXPERIMENTAL_GATES.iter().find(|(flag, _)| *flag == old) {
            return Ok(Target::Gate(gate));
        }
        let known = EXPERIMENTAL.contains(&old).then(|| find(old)).flatten();
        known.map(Target::Flag).ok_or_else(unknown)
    }

    fn is_bool(&self) -> bool {
        match self {
            Target::Flag(flag) => matches!(flag.kind, Kind::Bool | Kind::Old),
            Target::Gate(_) => true,
        }
    }

    fn set(&self, settings: &mut Settings, name: &str, text: &str) -> Result<(), Exit> {
        let bool_error = || {
            Exit::Usage(format!(
                "invalid boolean value {text:?} for -{name}: parse error"
            ))
        };
        match self {
            Target::Gate(gate) => {
                let on = read_bool(text).ok_or_else(bool_error)?;
                settings.add_gates(BTreeMap::from([((*gate).to_owned(), on)]));
            }
            Target::Flag(flag) if flag.kind == Kind::Bool => {
                settings.put(flag, Value::Bool(read_bool(text).ok_or_else(bool_error)?));
            }
            Target::Flag(flag) => {
                let value = flag.kind.read(text).map_err(|why| {
                    Exit::Usage(format!("invalid value {text:?} for flag -{name}: {why}"))
                })?;
                match value {
                    Value::Gates(gates) => settings.add_gates(gates),
                    value => settings.put(flag, value),
                }
            }
        }
        Ok(())
    }
}

/// The old and the new name of one flag together are refused, in whichever order they came.
fn check_aliases(args: &[String]) -> Result<(), Exit> {
    let name = |arg: &str| {
        let body = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-'))?;
        Some(body.split('=').next().unwrap_or(body).to_owned())
    };
    let names: BTreeSet<String> = args.iter().filter_map(|arg| name(arg)).collect();
    for new in EXPERIMENTAL {
        let old = format!("experimental-{new}");
        if names.contains(*new) && names.contains(&old) {
            return Err(Exit::Rejected(format!(
                "cannot set --{old} and --{new} at the same time, please use --{new} only"
            )));
        }
    }
    Ok(())
}

/// A variable that could not be used, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvWarning {
    /// `ETCD_…` names no flag.
    Unknown(String),
}

/// Adds what `ETCD_*` variables, and `TENON_*` for Tenon's own flags, set. One whose flag is on the command line too
/// is refused, as etcd does: whoever set it meant it to count.
pub fn read_env(
    settings: &mut Settings,
    vars: &BTreeMap<String, String>,
) -> Result<Vec<EnvWarning>, Exit> {
    let mut warnings = Vec::new();
    let mut known = BTreeSet::from([
        "ETCD_VERSION".to_owned(),
        "ETCD_UNSUPPORTED_ARCH".to_owned(),
    ]);
    for flag in FLAGS {
        let name = env_name(flag.name);
        known.insert(name.clone());
        let Some(text) = vars.get(&name).filter(|_| flag.name != "version") else {
            continue;
        };
        if settings.is_set(flag.name) {
            return Err(Exit::Rejected(format!(
                "conflicting environment variable {name} is shadowed by corresponding command-line flag \
                 (either unset environment variable or disable flag)"
            )));
        }
        if text.is_empty() {
            continue;
        }
        let value = flag
            .kind
            .read(text)
            .map_err(|why| Exit::Rejected(format!("invalid value {text:?} for {name}: {why}")))?;
        settings.put(flag, value);
    }
    for name in vars.keys().filter(|name| name.starts_with("ETCD_")) {
        if !known.contains(name) {
            warnings.push(EnvWarning::Unknown(name.clone()));
        }
    }
    Ok(warnings)
}

fn env_name(flag: &str) -> String {
    let program = if OWN.contains(&flag) { "TENON" } else { "ETCD" };
    format!("{program}_{}", flag.to_ascii_uppercase().replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn refusals_have_gos_texts_and_codes() {
        let cases: &[(&str, u8, &str)] = &[
            ("--x", 2, "flag provided but not defined: -x"),
            ("-x=1", 2, "flag provided but not defined: -x"),
            ("---x", 2, "bad flag syntax: ---x"),
            ("--=x", 2, "bad flag syntax: --=x"),
            ("--name", 2, "flag needs an argument: -name"),
            (
                "--quota-backend-bytes abc",
                2,
                "invalid value \"abc\" for flag -quota-backend-bytes: parse error",
            ),
            (
                "--initial-cluster-state foo",
                2,
                "invalid value \"foo\" for flag -initial-cluster-state: invalid value",
            ),
            (
                "--v2-deprecation foo",
                2,
                "invalid value \"foo\" for flag -v2-deprecation: invalid value \"foo\"",
            ),
            (
                "--feature-gates Foo=true",
                2,
                "invalid value \"Foo=true\" for flag -feature-gates: unrecognized feature gate: Foo",
            ),
            (
                "--pre-vote=foo",
                2,
                "invalid boolean value \"foo\" for -pre-vote: parse error",
            ),
            (
                "--grpc-keepalive-min-time=5",
                2,
                "invalid value \"5\" for flag -grpc-keepalive-min-time: parse error",
            ),
            ("stray", 1, "\"stray\" is not a valid flag"),
            ("--pre-vote false", 1, "\"false\" is not a valid flag"),
            ("--force --v 3", 1, "\"3\" is not a valid flag"),
            ("-- x", 1, "\"x\" is not a valid flag"),
            ("-", 1, "\"-\" is not a valid flag"),
        ];
        for (line, code, text) in cases {
            let exit = read_args(&args(line)).unwrap_err();
            assert_eq!((exit.code(), exit.text()), (*code, *text), "{line}");
        }
        for (line, exit) in [("-h", Exit::Help), ("--help", Exit::Help)] {
            assert_eq!(read_args(&args(line)).unwrap_err(), exit);
        }
    }

    #[test]
    fn dashes_equals_and_bools() {
        let line =
            "-name a --data-dir=/d --pre-vote=false --client-cert-auth -election-timeout=2000";
        let settings = read_args(&args(line)).unwrap();
        assert_eq!(settings.text("name"), "a");
        assert_eq!(settings.text("data-dir"), "/d");
        assert!(!settings.flag("pre-vote"));
        assert!(settings.flag("client-cert-auth"));
        assert_eq!(settings.uint("election-timeout"), 2000);
        assert_eq!(settings.uint("heartbeat-interval"), 100);
        assert!(!settings.is_set("heartbeat-interval"));
    }

    #[test]
    fn names_of_3_6_set_their_successors() {
        let line = "--experimental-corrupt-check-time=5s --experimental-enable-lease-checkpoint";
        let settings = read_args(&args(line)).unwrap();
        assert_eq!(settings.nanos("corrupt-check-time"), 5_000_000_000);
        assert!(settings.gate("LeaseCheckpoint"));
        for line in [
            "--corrupt-check-time 1s --experimental-corrupt-check-time 1s",
            "--experimental-corrupt-check-time 1s --corrupt-check-time 1s",
        ] {
            assert_eq!(read_args(&args(line)).unwrap_err().code(), 1);
        }
    }

    #[test]
    fn environment_fills_what_the_command_line_left() {
        let vars = BTreeMap::from([
            ("ETCD_NAME".to_owned(), "e".to_owned()),
            ("ETCD_DATA_DIR".to_owned(), "/e".to_owned()),
            ("ETCD_BLA".to_owned(), "1".to_owned()),
            ("ETCD_VERSION".to_owned(), "v3".to_owned()),
            ("ETCD_LOG_LEVEL".to_owned(), String::new()),
            ("PATH".to_owned(), "/bin".to_owned()),
        ]);
        for shadowed in ["--name c", "--log-level debug"] {
            let mut settings = read_args(&args(shadowed)).unwrap();
            let exit = read_env(&mut settings, &vars).unwrap_err();
            assert_eq!(exit.code(), 1);
            assert!(
                exit.text()
                    .starts_with("conflicting environment variable ETCD_")
            );
        }
        let mut settings = read_args(&args("--wal-dir c")).unwrap();
        let warnings = read_env(&mut settings, &vars).unwrap();
        assert_eq!(settings.text("name"), "e");
        assert_eq!(settings.text("data-dir"), "/e");
        assert!(!settings.is_set("log-level"));
        assert_eq!(warnings, [EnvWarning::Unknown("ETCD_BLA".to_owned())]);
        let vars = BTreeMap::from([("ETCD_QUOTA_BACKEND_BYTES".to_owned(), "abc".to_owned())]);
        let exit = read_env(&mut Settings::default(), &vars).unwrap_err();
        assert_eq!(
            (exit.code(), exit.text()),
            (
                1,
                "invalid value \"abc\" for ETCD_QUOTA_BACKEND_BYTES: parse error"
            )
        );
    }

    #[test]
    fn flags_that_etcd_does_not_have_are_set_by_variables_of_our_own() {
        let vars = |name: &str| BTreeMap::from([(name.to_owned(), "memory".to_owned())]);
        let mut settings = Settings::default();
        let unknown = read_env(&mut settings, &vars("ETCD_STORAGE_ENGINE"));
        let name = "ETCD_STORAGE_ENGINE".to_owned();
        assert_eq!(unknown, Ok(vec![EnvWarning::Unknown(name)]));
        assert_eq!(settings.text("storage-engine"), "redb");
        let known = read_env(&mut settings, &vars("TENON_STORAGE_ENGINE"));
        assert_eq!(known, Ok(vec![]));
        assert_eq!(settings.text("storage-engine"), "memory");
    }
}
