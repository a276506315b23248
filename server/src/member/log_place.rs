//! Room `server/member`: whether this member's log is where it was. What a member acknowledged is in its log
//! before it is anywhere else, and so is its vote: with the log gone it must not start, for it would serve an
//! older state and might vote twice in one term.
//!
//! `member/log-place`: 8 bytes `TENONLP1`, crc32c (little endian, over the rest), the folder of the log as
//! configured when it was last found there (UTF-8). Written once the log is durable, so a log that the file names
//! has existed.

use super::data_dir::StartError;
use super::sealed;
use std::path::Path;
use tenon_env::{Env, sync::oneshot};
use tenon_storage::Store;
use tenon_storage::wal::{Recovery, Wal};

/// First bytes of the file; the digit is its format version.
const MAGIC: &[u8; 8] = b"TENONLP1";
const NAME: &str = "log-place";

/// Refuses a log that is missing or ends too early, begins one at the first start, and notes where it is.
pub(super) async fn settle(
    env: &Env,
    (member_dir, wal_dir): (&Path, &Path),
    store: &Store,
    (wal, recovery): (&Wal, &Recovery),
) -> Result<(), StartError> {
    let path = member_dir.join(NAME);
    let fail = |what: String| StartError::Storage(format!("{}: {what}", path.display()));
    let noted = match env.disk.stat(&path) {
        Ok(None) => None,
        Ok(Some(_)) => {
            let file = env.disk.read(&path).map_err(|e| fail(e.to_string()))?;
            Some(decode(&file).map_err(fail)?)
        }
        Err(e) => return Err(fail(e.to_string())),
    };
    if let (false, Some(place)) = (recovery.begun, &noted) {
        return Err(StartError::Storage(missing(wal_dir, place)));
    }
    store
        .check_log(recovery)
        .map_err(|e| StartError::Storage(format!("log in {}: {e}", wal_dir.display())))?;
    if !recovery.begun {
        begin(wal).await?;
    }
    let place = wal_dir.to_string_lossy();
    if noted.as_deref() != Some(&*place) {
        env.disk
            .write_atomic(&path, &encode(&place))
            .map_err(|e| fail(e.to_string()))?;
    }
    Ok(())
}

/// What can be done without the log.
const ADVICE: &str = "what this member acknowledged may be in the missing log only; bring it back, or remove \
     this member from its cluster and add it again with an empty data directory";

fn missing(wal_dir: &Path, place: &str) -> String {
    let now = wal_dir.display();
    if *place == *now.to_string() {
        return format!("the write-ahead log is missing: {now} holds none any more; {ADVICE}");
    }
    format!(
        "the write-ahead log is missing: {now} holds none, this member's log was last in {place}; start with \
         --wal-dir={place}, or move it; {ADVICE}"
    )
}

/// Makes an empty log durable, so that its absence means something from now on.
async fn begin(wal: &Wal) -> Result<(), StartError> {
    let (tx, rx) = oneshot::channel();
    wal.truncate_after(
        None,
        Box::new(move |result| {
            let _ = tx.send(result);
        }),
    );
    match rx.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(StartError::Storage(error.to_string())),
        Err(_gone) => Err(StartError::Storage("the write-ahead log ended".into())),
    }
}

fn encode(place: &str) -> Vec<u8> {
    sealed::seal(MAGIC, place.as_bytes())
}

fn decode(file: &[u8]) -> Result<String, String> {
    let place = sealed::open(MAGIC, file)?;
    String::from_utf8(place.to_vec()).map_err(|e| e.to_string())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "moves real files")]
mod tests {
    use super::super::Member;
    use super::super::config::tests::config;
    use super::*;
    use std::time::Duration;
    use tenon_proto::caller::Caller;
    use tenon_proto::etcdserverpb::PutRequest;

    #[test]
    fn the_file_keeps_the_place_and_notices_damage() {
        let file = encode("/var/lib/tenon/wal");
        assert_eq!(decode(&file).as_deref(), Ok("/var/lib/tenon/wal"));
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            assert!(decode(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn the_text_says_where_the_log_was() {
        let text = missing(Path::new("/a/member/wal"), "/b");
        assert!(text.contains("--wal-dir=/b"), "{text}");
        let text = missing(Path::new("/a/member/wal"), "/a/member/wal");
        assert!(text.contains("holds none any more"), "{text}");
    }

    /// Starts a member over `dir` with its log in `wal`, writes one key, stops it in order.
    async fn live(dir: &Path, wal: Option<&Path>, key: &str) -> Result<(), StartError> {
        let env = tenon_env::real::env_without_peers();
        let mut config = config("m", &["http://localhost:2380"]);
        (config.data_dir, config.wal_dir) = (dir.to_owned(), wal.map(Path::to_owned));
        (config.heartbeat, config.election) =
            (Duration::from_millis(20), Duration::from_millis(100));
        let member = Member::start(&env, config).await?;
        member.wait_ready().await;
        let put = PutRequest {
            key: key.to_owned().into(),
            ..PutRequest::default()
        };
        let kv = &member.services().kv;
        kv.put(&Caller::default(), put).await.expect("put");
        member.shutdown().await;
        Ok(())
    }

    fn refusal(result: Result<(), StartError>) -> String {
        match result {
            Err(StartError::Storage(text)) => text,
            other => panic!("not refused: {other:?}"),
        }
    }

    fn copy(from: &Path, to: &Path) {
        std::fs::create_dir(to).unwrap();
        for file in std::fs::read_dir(from).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }

    #[tokio::test]
    async fn a_member_without_its_log_is_refused_and_its_data_untouched() {
        let dir = tempfile::tempdir().unwrap();
        let (data, elsewhere) = (dir.path().join("d"), dir.path().join("w"));
        live(&data, None, "a").await.expect("first start");
        let (wal, kept) = (data.join("member/wal"), dir.path().join("kept"));
        std::fs::rename(&wal, &kept).unwrap();
        let text = refusal(live(&data, None, "b").await);
        assert!(text.contains("holds none any more"), "{text}");
        let text = refusal(live(&data, Some(&elsewhere), "b").await);
        assert!(
            text.contains(&format!("--wal-dir={}", wal.display())),
            "{text}"
        );
        // Back again, and later moved on purpose.
        std::fs::remove_dir_all(&wal).unwrap();
        std::fs::rename(&kept, &wal).unwrap();
        live(&data, None, "b").await.expect("it is back");
        std::fs::remove_dir_all(&elsewhere).unwrap();
        std::fs::rename(&wal, &elsewhere).unwrap();
        live(&data, Some(&elsewhere), "c")
            .await
            .expect("it was moved");
    }

    #[tokio::test]
    async fn an_older_copy_of_the_log_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (data, old) = (dir.path().join("d"), dir.path().join("old"));
        live(&data, None, "a").await.expect("first start");
        let wal = data.join("member/wal");
        copy(&wal, &old);
        live(&data, None, "b").await.expect("second start");
        std::fs::remove_dir_all(&wal).unwrap();
        std::fs::rename(&old, &wal).unwrap();
        let text = refusal(live(&data, None, "c").await);
        assert!(text.contains("the write-ahead log ends at index"), "{text}");
    }
}
