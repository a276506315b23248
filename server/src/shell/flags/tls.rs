//! Room `server/shell`: what is checked of the TLS flags, used or not. Pure.

use super::config::reject;
use super::settings::{Exit, Settings};

/// Cipher suites by the names of Go's library.
const CIPHER_SUITES: &[&str] = &[
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_RC4_128_SHA",
];

/// Checks versions and cipher suites, in etcd's words.
pub(super) fn check(settings: &Settings) -> Result<(), Exit> {
    let (min, max) = (
        settings.text("tls-min-version"),
        settings.text("tls-max-version"),
    );
    for version in [&min, &max] {
        if !["", "TLS1.2", "TLS1.3"].contains(&version.as_str()) {
            return reject(format!(
                "unexpected TLS version {version:?} (must be one of: TLS1.2, TLS1.3)"
            ));
        }
    }
    if !max.is_empty() && min > max {
        return reject(format!(
            "min version ({min}) is greater than max version ({max})"
        ));
    }
    if min == "TLS1.3" && !settings.list("cipher-suites").is_empty() {
        return reject("cipher suites cannot be configured when only TLS1.3 is enabled");
    }
    let mut suites = settings.list("cipher-suites").into_iter();
    if let Some(unknown) = suites.find(|name| !CIPHER_SUITES.contains(&name.as_str())) {
        return reject(format!("unexpected TLS cipher suite {unknown:?}"));
    }
    if settings.is_set("cipher-suites") && settings.list("cipher-suites").is_empty() {
        return reject("unexpected TLS cipher suite \"\"");
    }
    Ok(())
}
