//! Room `server/member`: the shape of a member's and a host's small files: 8 bytes that name format and version,
//! crc32c (little endian) over the rest, the rest. Pure.

use bytes::Buf;

/// The file's bytes around `body`. The last byte of `magic` is the format's version.
pub(crate) fn seal(magic: &[u8; 8], body: &[u8]) -> Vec<u8> {
    let mut file = magic.to_vec();
    file.extend_from_slice(&crc32c::crc32c(body).to_le_bytes());
    file.extend_from_slice(body);
    file
}

/// The body of a file with this `magic`.
///
/// # Errors
/// A text that says whether its version is another or its bytes are damaged.
pub(crate) fn open<'a>(magic: &[u8; 8], file: &'a [u8]) -> Result<&'a [u8], String> {
    let Some(mut rest) = file.strip_prefix(magic) else {
        if file.len() < magic.len() || file.iter().all(|byte| *byte == 0) {
            return Err(format!(
                "the file is damaged: it has {} of at least {} bytes, or zeros only",
                file.len(),
                magic.len() + 4
            ));
        }
        return Err("it is of another format version; start the version that wrote it".into());
    };
    if rest.len() < 4 || rest.get_u32_le() != crc32c::crc32c(rest) {
        return Err(damaged());
    }
    Ok(rest)
}

/// What is said of bytes that cannot be what was written.
pub(crate) fn damaged() -> String {
    "its checksum does not match: the file is damaged".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_damaged_and_not_of_another_version() {
        let magic = b"TNTEST01";
        let sealed = seal(magic, b"body");
        assert_eq!(open(magic, &sealed), Ok(&b"body"[..]));
        for (file, why) in [
            (&sealed[..0], "damaged"),
            (&sealed[..7], "damaged"),
            (&sealed[..9], "damaged"),
            (&sealed[..sealed.len() - 1], "damaged"),
            (&[0; 64][..], "damaged"),
            (&b"TNTEST02 and more"[..], "another format version"),
        ] {
            let error = open(magic, file).unwrap_err();
            assert!(error.contains(why), "{file:?}: {error}");
        }
    }
}
