//! Room `server/shell`: etcd's flags. [`table`] lists them, [`parse`] reads command line and environment,
//! [`file`] the config file, [`config`] checks and types the outcome, [`usage`] prints it. All pure: the
//! caller gives arguments, variables and the file's text.

pub mod config;
pub mod file;
pub mod host;
pub mod parse;
mod retention;
pub mod settings;
pub mod table;
mod tls;
pub mod url;
pub mod usage;
pub mod value;

pub use config::{Config, Persona};
pub use settings::{Exit, Settings};

use parse::{EnvWarning, read_args, read_env};
use std::collections::BTreeMap;

/// The outcome of reading flags, variables and file.
#[derive(Debug)]
pub struct Loaded {
    /// What to run.
    pub config: Config,
    /// Variables that had no effect.
    pub warnings: Vec<EnvWarning>,
    /// The config file that was used, if one was.
    pub file: Option<String>,
}

/// Reads everything. `read` gives a file's text or the system's text for why not.
pub fn load(
    args: &[String],
    vars: &BTreeMap<String, String>,
    persona: Persona,
    read: impl FnOnce(&str) -> Result<String, String>,
) -> Result<Loaded, Exit> {
    let mut settings = read_args(args)?;
    if settings.flag("version") {
        return Err(Exit::Version);
    }
    let mut path = settings.text("config-file");
    if path.is_empty() {
        path = vars.get("ETCD_CONFIG_FILE").cloned().unwrap_or_default();
    }
    if !path.is_empty() {
        let text = read(&path).map_err(|why| Exit::Rejected(format!("open {path}: {why}")))?;
        let config = Config::build(&file::read_file(&text)?, persona)?;
        return Ok(Loaded {
            config,
            warnings: vec![],
            file: Some(path),
        });
    }
    let warnings = read_env(&mut settings, vars)?;
    let config = Config::build(&settings, persona)?;
    Ok(Loaded {
        config,
        warnings,
        file: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_file_replaces_flags_and_variables() {
        let args = ["--name=flag", "--config-file", "c.yml", "--pre-vote=false"].map(str::to_owned);
        let vars = BTreeMap::from([("ETCD_DATA_DIR".to_owned(), "/env".to_owned())]);
        let loaded = load(&args, &vars, Persona::Etcd, |path| {
            assert_eq!(path, "c.yml");
            Ok("max-txn-ops: 5".to_owned())
        })
        .unwrap();
        assert_eq!(loaded.config.member.name, "default");
        assert_eq!(loaded.config.member.max_txn_ops, 5);
        assert_eq!(loaded.config.member.data_dir.to_str(), Some("default.etcd"));
        let missing = |_: &str| Err("no such file or directory".to_owned());
        let vars = BTreeMap::from([("ETCD_CONFIG_FILE".to_owned(), "nope.yml".to_owned())]);
        let exit = load(&[], &vars, Persona::Etcd, missing).unwrap_err();
        assert_eq!(exit.text(), "open nope.yml: no such file or directory");
    }
}
