//! Room `sim`, workloads: callers: each makes drawn requests one after another, each at any member.

use super::Desk;
use super::requests::Draw;
use crate::world::Client;
use std::time::Duration;

/// Makes calls until it is over, at most `calls`, with pauses up to `think`.
pub(crate) async fn make_calls(
    desk: Desk,
    client: Client,
    mut draw: Draw,
    calls: u64,
    think: Duration,
) {
    for _ in 0..calls {
        desk.think(&client, &mut draw.rng, think).await;
        if desk.is_over() {
            return;
        }
        let (seen, compaction) = (desk.history.seen(), desk.history.compaction());
        let watched = desk.seen.last();
        let number = draw.client;
        let request = |id| draw.request(id, seen, compaction, watched);
        desk.call(&client, number, request).await;
    }
}
