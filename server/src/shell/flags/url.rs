//! Room `server/shell`: the URLs of etcd's flags: their form, and the addresses they name. Pure.

use std::net::IpAddr;
use std::path::PathBuf;

/// How a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `http`
    Http,
    /// `https`
    Https,
    /// `unix`
    Unix,
    /// `unixs`
    Unixs,
}

impl Scheme {
    /// Whether the listener needs TLS.
    pub fn secure(self) -> bool {
        matches!(self, Scheme::Https | Scheme::Unixs)
    }
}

/// A URL that passed [`read_urls`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagUrl {
    /// As given, without spaces around it.
    pub text: String,
    /// Its scheme.
    pub scheme: Scheme,
    /// Host as written (brackets of IPv6 removed), or the socket path of `unix`.
    pub host: String,
    /// Port, 0 for unix sockets.
    pub port: u16,
}

impl FlagUrl {
    /// Reads one URL; the error is etcd's text.
    pub fn read(text: &str) -> Result<FlagUrl, String> {
        let text = text.trim();
        let bad_scheme = || format!("URL scheme must be http, https, unix, or unixs: {text}");
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(bad_scheme());
        };
        if scheme.is_empty() {
            return Err(format!("parse {text:?}: missing protocol scheme"));
        }
        let scheme = match scheme {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            "unix" => Scheme::Unix,
            "unixs" => Scheme::Unixs,
            _ => return Err(bad_scheme()),
        };
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        if matches!(scheme, Scheme::Unix | Scheme::Unixs) {
            let url = FlagUrl {
                text: text.to_owned(),
                scheme,
                host: rest.to_owned(),
                port: 0,
            };
            return Ok(url);
        }
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let authority = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        let form = || format!("URL address does not have the form \"host:port\": {text}");
        let (host, port) = authority.rsplit_once(':').ok_or_else(form)?;
        if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
            return Err(form());
        }
        if !path.is_empty() {
            return Err(format!("URL must not contain a path: {text}"));
        }
        let port = if port.is_empty() {
            0
        } else if port.bytes().all(|b| b.is_ascii_digit()) {
            port.parse::<u16>()
                .map_err(|_| format!("invalid port {port:?} in {text}"))?
        } else {
            return Err(format!(
                "parse {text:?}: invalid port {:?} after host",
                format!(":{port}")
            ));
        };
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        Ok(FlagUrl {
            text: text.to_owned(),
            scheme,
            host,
            port,
        })
    }

    /// Whether it can be bound: an address, `localhost` or a socket path.
    pub fn check_bindable(&self) -> Result<(), String> {
        match self.scheme {
            Scheme::Unix | Scheme::Unixs => Ok(()),
            _ if self.host == "localhost" => Ok(()),
            _ if self.host.parse::<IpAddr>().is_ok() => Ok(()),
            _ => Err(format!("expected IP in URL for binding ({})", self.text)),
        }
    }

    /// Whether it names a host to be told to others.
    pub fn check_advertised(&self) -> Result<(), String> {
        match self.scheme {
            Scheme::Http | Scheme::Https if self.host.is_empty() => {
                Err(format!("unexpected empty host ({})", self.text))
            }
            _ => Ok(()),
        }
    }

    /// The path of a unix socket: etcd binds the URL's `host:port` part as a file name.
    pub fn socket_path(&self) -> PathBuf {
        PathBuf::from(&self.host)
    }
}

/// Reads a comma-separated list; duplicates fall away, order becomes etcd's (sorted).
pub fn read_urls(text: &str) -> Result<Vec<String>, String> {
    let mut urls = Vec::new();
    for part in text.split(',') {
        urls.push(FlagUrl::read(part)?.text);
    }
    urls.sort();
    urls.dedup();
    Ok(urls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_is_checked_with_etcds_texts() {
        let bad = [
            ("foo", "URL scheme must be http, https, unix, or unixs: foo"),
            (
                "ftp://a:1",
                "URL scheme must be http, https, unix, or unixs: ftp://a:1",
            ),
            (
                "http://127.0.0.1",
                "URL address does not have the form \"host:port\": http://127.0.0.1",
            ),
            (
                "http:///foo",
                "URL address does not have the form \"host:port\": http:///foo",
            ),
            (
                "http://127.0.0.1:1/foo",
                "URL must not contain a path: http://127.0.0.1:1/foo",
            ),
            (":1", "parse \":1\": missing protocol scheme"),
            (
                "http://127.0.0.1:abc",
                "parse \"http://127.0.0.1:abc\": invalid port \":abc\" after host",
            ),
        ];
        for (text, error) in bad {
            assert_eq!(FlagUrl::read(text), Err(error.to_owned()));
        }
        let six = FlagUrl::read("http://[::1]:2379").unwrap();
        assert_eq!((six.host.as_str(), six.port), ("::1", 2379));
        let socket = FlagUrl::read("unix:///run/etcd.sock:0").unwrap();
        assert_eq!(socket.socket_path(), PathBuf::from("/run/etcd.sock:0"));
    }

    #[test]
    fn lists_are_trimmed_sorted_and_unique() {
        let urls = read_urls("http://b:2, http://a:1,http://b:2").unwrap();
        assert_eq!(urls, ["http://a:1", "http://b:2"]);
    }

    #[test]
    fn binding_needs_an_address_and_advertising_a_host() {
        let named = FlagUrl::read("http://example.com:1").unwrap();
        assert_eq!(
            named.check_bindable(),
            Err("expected IP in URL for binding (http://example.com:1)".to_owned())
        );
        assert_eq!(
            FlagUrl::read("http://localhost:1")
                .unwrap()
                .check_bindable(),
            Ok(())
        );
        let empty = FlagUrl::read("http://:1").unwrap();
        assert_eq!(
            empty.check_advertised(),
            Err("unexpected empty host (http://:1)".to_owned())
        );
    }
}
