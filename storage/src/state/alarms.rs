//! Room storage, state: raised alarms, and which commands they refuse. Pure data; judged at apply, so
//! every member decides alike.

use crate::engine::{RowChange, Table};
use bytes::Bytes;
use prost::Message;
use std::collections::BTreeSet;
use tenon_proto::command::command::Body;
use tenon_proto::error::Error;
use tenon_proto::etcdserverpb::alarm_request::AlarmAction;
use tenon_proto::etcdserverpb::request_op::Request;
use tenon_proto::etcdserverpb::{AlarmMember, AlarmRequest, AlarmType, RequestOp, TxnRequest};

/// The raised alarms, by member and type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alarms {
    raised: BTreeSet<(u64, i32)>,
}

fn member(&(member_id, alarm): &(u64, i32)) -> AlarmMember {
    AlarmMember { member_id, alarm }
}

fn row(raised: &(u64, i32), set: bool) -> RowChange {
    let mut key = raised.0.to_be_bytes().to_vec();
    key.extend_from_slice(&raised.1.to_be_bytes());
    let value = set.then(|| Bytes::from(member(raised).encode_to_vec()));
    RowChange {
        table: Table::Alarms,
        key: key.into(),
        value,
    }
}

impl Alarms {
    /// Alarms from the values of their table.
    pub(crate) fn from_rows(rows: &[(Bytes, Bytes)]) -> Result<Alarms, prost::DecodeError> {
        let decode = |value: &Bytes| {
            AlarmMember::decode(value.clone()).map(|alarm| (alarm.member_id, alarm.alarm))
        };
        let raised = rows
            .iter()
            .map(|(_, value)| decode(value))
            .collect::<Result<_, _>>()?;
        Ok(Alarms { raised })
    }

    /// Every raised alarm, by member, then type.
    pub(crate) fn list(&self) -> Vec<AlarmMember> {
        self.raised.iter().map(member).collect()
    }

    /// Whether any member raised it.
    pub(crate) fn is_raised(&self, alarm: AlarmType) -> bool {
        self.raised
            .iter()
            .any(|(_, raised)| *raised == alarm as i32)
    }

    /// Lists, raises or lowers; answers the alarms concerned and the row to store.
    ///
    /// - GET with type NONE lists all, else those of the type, whatever member is named.
    /// - ACTIVATE answers the entry, again too; type NONE does nothing.
    /// - DEACTIVATE answers the entry it removed, nothing when there was none.
    pub(crate) fn apply(
        &mut self,
        request: &AlarmRequest,
    ) -> (Vec<AlarmMember>, Option<RowChange>) {
        let named = (request.member_id, request.alarm);
        let none = request.alarm == AlarmType::None as i32;
        match AlarmAction::try_from(request.action) {
            Ok(AlarmAction::Get) => {
                let listed = self
                    .raised
                    .iter()
                    .filter(|raised| none || raised.1 == request.alarm);
                (listed.map(member).collect(), None)
            }
            Ok(AlarmAction::Activate) if !none => {
                let row = self.raised.insert(named).then(|| row(&named, true));
                (vec![member(&named)], row)
            }
            Ok(AlarmAction::Deactivate) if self.raised.remove(&named) => {
                (vec![member(&named)], Some(row(&named, false)))
            }
            _ => (Vec::new(), None),
        }
    }

    /// Whether the raised alarms let the command pass.
    ///
    /// - CORRUPT refuses everything that changes keys or leases; it wins over NOSPACE.
    /// - NOSPACE refuses what adds: puts, transactions with a put in either branch, grants.
    pub(crate) fn judge(&self, body: &Body) -> Result<(), Error> {
        if self.raised.is_empty() {
            return Ok(());
        }
        let changes = matches!(
            body,
            Body::Put(_)
                | Body::DeleteRange(_)
                | Body::Txn(_)
                | Body::Compact(_)
                | Body::LeaseGrant(_)
                | Body::LeaseRevoke(_)
                | Body::LeaseExpire(_)
        );
        if changes && self.is_raised(AlarmType::Corrupt) {
            return Err(Error::Corrupt);
        }
        let adds = match body {
            Body::Put(_) | Body::LeaseGrant(_) => true,
            Body::Txn(request) => txn_puts(request),
            _ => false,
        };
        if adds && self.is_raised(AlarmType::Nospace) {
            return Err(Error::NoSpace);
        }
        Ok(())
    }
}

fn txn_puts(request: &TxnRequest) -> bool {
    let puts = |op: &RequestOp| match &op.request {
        Some(Request::RequestPut(_)) => true,
        Some(Request::RequestTxn(nested)) => txn_puts(nested),
        _ => false,
    };
    request.success.iter().chain(&request.failure).any(puts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_proto::etcdserverpb::{DeleteRangeRequest, PutRequest};

    fn ask(alarms: &mut Alarms, action: AlarmAction, member_id: u64, alarm: AlarmType) -> usize {
        let request = AlarmRequest {
            action: action as i32,
            member_id,
            alarm: alarm as i32,
        };
        alarms.apply(&request).0.len()
    }

    #[test]
    fn raising_listing_and_lowering() {
        use AlarmAction::{Activate, Deactivate, Get};
        use AlarmType::{Corrupt, None, Nospace};
        let mut alarms = Alarms::default();
        assert_eq!(ask(&mut alarms, Activate, 7, None), 0);
        assert_eq!(ask(&mut alarms, Activate, 7, Nospace), 1);
        assert_eq!(ask(&mut alarms, Activate, 7, Nospace), 1);
        assert_eq!(ask(&mut alarms, Activate, 8, Corrupt), 1);
        assert_eq!(ask(&mut alarms, Get, 0, None), 2);
        assert_eq!(ask(&mut alarms, Get, 0, Corrupt), 1);
        assert_eq!(ask(&mut alarms, Deactivate, 0, Nospace), 0);
        assert_eq!(ask(&mut alarms, Deactivate, 7, Nospace), 1);
        assert_eq!(ask(&mut alarms, Deactivate, 7, Nospace), 0);
        let (_, row) = alarms.apply(&AlarmRequest {
            action: Activate as i32,
            member_id: 1,
            alarm: 1,
        });
        let row = row.expect("newly raised");
        let rows = [(row.key, row.value.expect("set"))];
        assert!(
            Alarms::from_rows(&rows)
                .expect("own bytes")
                .is_raised(Nospace)
        );
    }

    #[test]
    fn what_they_refuse() {
        let put = || RequestOp {
            request: Some(Request::RequestPut(PutRequest::default())),
        };
        let inner = TxnRequest {
            failure: vec![put()],
            ..TxnRequest::default()
        };
        let nested = RequestOp {
            request: Some(Request::RequestTxn(inner)),
        };
        let puts = Body::Txn(TxnRequest {
            success: vec![nested],
            ..TxnRequest::default()
        });
        let deletes = Body::DeleteRange(DeleteRangeRequest::default());
        let mut alarms = Alarms::default();
        assert_eq!(alarms.judge(&puts), Ok(()));
        alarms.raised.insert((1, AlarmType::Nospace as i32));
        assert_eq!(alarms.judge(&puts), Err(Error::NoSpace));
        assert_eq!(alarms.judge(&deletes), Ok(()));
        assert_eq!(alarms.judge(&Body::Txn(TxnRequest::default())), Ok(()));
        alarms.raised.insert((1, AlarmType::Corrupt as i32));
        assert_eq!(alarms.judge(&puts), Err(Error::Corrupt));
        assert_eq!(alarms.judge(&deletes), Err(Error::Corrupt));
        assert_eq!(alarms.judge(&Body::Alarm(AlarmRequest::default())), Ok(()));
    }
}
