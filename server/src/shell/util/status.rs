//! Room `server/shell`: `snapshot status`: what a snapshot holds, in etcdutl's forms. Reads all of it, so that
//! damage is seen.

use super::Failure;
use super::args::Args;
use crate::version::CLUSTER_VERSION;
use std::path::Path;
use tenon_storage::archive::{ArchiveReader, ArchiveSurvey, HashCheck, survey};

pub(super) fn run(args: &Args, file: &str) -> Result<String, Failure> {
    let disk = tenon_env::real::RealDisk;
    let failed = |error: tenon_storage::archive::ArchiveError| Failure::Failed(error.to_string());
    let opened = ArchiveReader::open(&disk, Path::new(file), HashCheck::Skip);
    let status = survey(&mut opened.map_err(failed)?).map_err(failed)?;
    let form = args.value("write-out").unwrap_or("simple");
    show(&status, form).ok_or_else(|| Failure::Usage(format!("unsupported write-out {form:?}")))
}

fn show(status: &ArchiveSurvey, form: &str) -> Option<String> {
    let ArchiveSurvey {
        hash,
        revision,
        keys,
        bytes,
    } = status;
    let cells = [
        format!("{hash:x}"),
        revision.to_string(),
        keys.to_string(),
        humanised(*bytes),
        CLUSTER_VERSION.to_owned(),
    ];
    match form {
        "simple" => Some(format!("{}\n", cells.join(", "))),
        "json" => Some(format!(
            "{{\"hash\":{hash},\"revision\":{revision},\"totalKey\":{keys},\"totalSize\":{bytes},\
             \"version\":\"{CLUSTER_VERSION}\"}}\n"
        )),
        "fields" => Some(format!(
            "\"Hash\" : {hash}\n\"Revision\" : {revision}\n\"Keys\" : {keys}\n\"Size\" : {bytes}\n\
             \"Version\" : \"{CLUSTER_VERSION}\"\n"
        )),
        "table" => Some(table(&cells)),
        _ => None,
    }
}

fn table(cells: &[String; 5]) -> String {
    let heads = ["HASH", "REVISION", "TOTAL KEYS", "TOTAL SIZE", "VERSION"];
    let widths = [0, 1, 2, 3, 4].map(|at| cells[at].len().max(heads[at].len()));
    let line: String = widths
        .iter()
        .map(|width| format!("+{}", "-".repeat(width + 2)))
        .collect();
    let row = |texts: [&str; 5]| -> String {
        let cells = texts.iter().zip(widths);
        cells
            .map(|(text, width)| format!("| {text:^width$} "))
            .collect()
    };
    let values = [0, 1, 2, 3, 4].map(|at| cells[at].as_str());
    format!(
        "{line}+\n{}|\n{line}+\n{}|\n{line}+\n",
        row(heads),
        row(values)
    )
}

/// As etcd's tools show sizes: SI units, two digits below ten.
fn humanised(bytes: u64) -> String {
    if bytes < 10 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit < 6 {
        value /= 1000.0;
        unit += 1;
    }
    let name = ["B", "kB", "MB", "GB", "TB", "PB", "EB"][unit];
    let rounded = (value * 10.0 + 0.5).floor() / 10.0;
    if rounded < 10.0 {
        format!("{rounded:.1} {name}")
    } else {
        format!("{rounded:.0} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_etcdutls() {
        let status = ArchiveSurvey {
            hash: 0x7af3_4884,
            revision: 10,
            keys: 1,
            bytes: 20_512,
        };
        let cases = [
            ("simple", "7af34884, 10, 1, 20 kB, 3.7.0\n"),
            (
                "json",
                "{\"hash\":2062764164,\"revision\":10,\"totalKey\":1,\"totalSize\":20512,\
                 \"version\":\"3.7.0\"}\n",
            ),
            (
                "fields",
                "\"Hash\" : 2062764164\n\"Revision\" : 10\n\"Keys\" : 1\n\"Size\" : 20512\n\
                 \"Version\" : \"3.7.0\"\n",
            ),
            (
                "table",
                "+----------+----------+------------+------------+---------+\n\
                 |   HASH   | REVISION | TOTAL KEYS | TOTAL SIZE | VERSION |\n\
                 +----------+----------+------------+------------+---------+\n\
                 | 7af34884 |    10    |     1      |   20 kB    |  3.7.0  |\n\
                 +----------+----------+------------+------------+---------+\n",
            ),
        ];
        for (form, text) in cases {
            assert_eq!(show(&status, form).as_deref(), Some(text), "{form}");
        }
        assert_eq!(show(&status, "xml"), None);
    }

    #[test]
    fn sizes_are_for_people() {
        for (bytes, text) in [
            (7, "7 B"),
            (999, "999 B"),
            (2_100, "2.1 kB"),
            (20_480, "20 kB"),
            (2_147_483_648, "2.1 GB"),
        ] {
            assert_eq!(humanised(bytes), text);
        }
    }
}
