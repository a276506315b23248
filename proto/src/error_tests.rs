//! Room proto: walks the error table both ways.

use super::Error;
use crate::code::Code;
use crate::command::Failure;
use std::collections::BTreeSet;

/// Rows of etcd's own table, and texts beside it.
const ROWS: usize = 63 + 15;

#[test]
fn every_row_survives_every_way_round() {
    assert_eq!(Error::TABLE.len(), ROWS);
    for error in Error::TABLE {
        let row = error.row().expect("a unit variant is a row");
        assert_eq!(Error::from_name(row.name).as_ref(), Some(error));
        assert_eq!(&Error::from_status(row.wire, row.text), error);
        assert_eq!(
            &Error::from_status(Code::Internal, row.text),
            error,
            "only the text decides"
        );
        assert_eq!(
            (error.code(), error.declared_code()),
            (row.wire, row.declared)
        );
        assert_eq!(
            (error.message().as_str(), error.name()),
            (row.text, row.name)
        );

        let status = tonic::Status::from(error.clone());
        assert_eq!(
            (Code::from(status.code()), status.message()),
            (row.wire, row.text)
        );
        assert_eq!(&Error::from(&status), error);
        assert_eq!(&Error::from(Failure::from(error.clone())), error);
    }
}

#[test]
fn names_and_texts_are_unique() {
    let rows = || Error::TABLE.iter().filter_map(Error::row);
    assert_eq!(
        rows().map(|row| row.name).collect::<BTreeSet<_>>().len(),
        ROWS
    );
    assert_eq!(
        rows().map(|row| row.text).collect::<BTreeSet<_>>().len(),
        ROWS
    );
    for row in rows() {
        assert!(
            !row.text.is_empty() && row.text.trim() == row.text,
            "{row:?}"
        );
        assert!(row.wire != Code::Ok && row.declared != Code::Ok, "{row:?}");
    }
}

/// Spot checks written down by hand, so that a slip in the table's macro cannot pass unseen.
#[test]
fn the_wire_is_etcds() {
    let wire = |e: &Error| (e.code(), e.message());
    assert_eq!(
        wire(&Error::EmptyKey),
        (
            Code::InvalidArgument,
            "etcdserver: key is not provided".into()
        )
    );
    assert_eq!(
        wire(&Error::Compacted),
        (
            Code::OutOfRange,
            "etcdserver: mvcc: required revision has been compacted".into()
        )
    );
    let differing: Vec<_> = Error::TABLE
        .iter()
        .filter(|e| e.code() != e.declared_code())
        .cloned()
        .collect();
    assert_eq!(
        differing,
        [Error::MemberNotEnoughStarted, Error::RequestTooManyRequests]
    );
    assert_eq!(Error::MemberNotEnoughStarted.code(), Code::Unknown);
    assert_eq!(
        Error::RequestTooManyRequests.declared_code(),
        Code::ResourceExhausted
    );

    let plain: Vec<_> = Error::TABLE[..63]
        .iter()
        .filter(|e| !e.is_mapped())
        .cloned()
        .collect();
    let expected = [
        Error::InvalidClientAPIVersion,
        Error::WatchCanceled,
        Error::PermissionNotGiven,
        Error::TimeoutWaitAppliedIndex,
        Error::Canceled,
        Error::DeadlineExceeded,
    ];
    assert_eq!(plain, expected);
    assert!(Error::TABLE[63..].iter().all(|e| !e.is_mapped()));
}

#[test]
fn errors_outside_the_table_keep_code_and_text() {
    let other = Error::from_status(Code::Aborted, "something new");
    assert_eq!(other, Error::other(Code::Aborted, "something new"));
    assert_eq!(
        (other.name(), other.is_mapped(), other.row().is_none()),
        ("", false, true)
    );
    assert_eq!(Error::from(tonic::Status::from(other.clone())), other);
    assert_eq!(Error::from(Failure::from(other.clone())), other);

    let large = Error::MessageTooLarge {
        size: 3_000_000,
        max: 2_097_152,
    };
    assert_eq!(
        large.message(),
        "grpc: received message larger than max (3000000 vs. 2097152)"
    );
    assert_eq!(Error::from(tonic::Status::from(large.clone())), large);
    assert_eq!(Error::from(Failure::from(large.clone())), large);
    let odd = "grpc: received message larger than max (many)";
    assert_eq!(
        Error::from_status(Code::Unknown, odd),
        Error::other(Code::Unknown, odd)
    );
}

/// A peer of a later version may know names and texts we do not, or have reworded one.
#[test]
fn failures_of_other_versions_map_by_name_first() {
    let failure = |name: &str, message: &str| {
        Error::from(Failure {
            name: name.into(),
            code: 5,
            message: message.into(),
        })
    };
    assert_eq!(failure("LeaseNotFound", "reworded"), Error::LeaseNotFound);
    assert_eq!(failure("Later", "etcdserver: no leader"), Error::NoLeader);
    assert_eq!(
        failure("Later", "later"),
        Error::other(Code::NotFound, "later")
    );
}

#[test]
fn cancel_reasons_are_printed_as_etcd_prints_them() {
    assert_eq!(
        Error::PermissionDenied.cancel_reason(),
        "rpc error: code = PermissionDenied desc = etcdserver: permission denied"
    );
    assert_eq!(
        Error::InvalidAuthToken.cancel_reason(),
        "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token"
    );
    assert_eq!(
        Error::WatchRangeEmpty.cancel_reason(),
        "mvcc: watcher range is empty"
    );
    assert_eq!(
        Error::Compacted.cancel_reason(),
        "etcdserver: mvcc: required revision has been compacted"
    );
}

#[test]
fn codes_agree_with_tonic() {
    for (number, code) in Code::ALL.into_iter().enumerate() {
        assert_eq!(code.number() as usize, number);
        assert_eq!(Code::from_number(code.number()), code);
        assert_eq!(Code::from(tonic::Code::from(code)), code);
        assert_eq!(tonic::Code::from(code) as usize, number);
    }
    assert_eq!(Code::from_number(17), Code::Unknown);
    assert_eq!(
        (Code::Ok.to_string(), Code::DataLoss.to_string()),
        ("OK".into(), "DataLoss".into())
    );
}
