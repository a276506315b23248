//! Room storage, archives: one into an empty engine.

use super::{ArchiveError, ArchiveReader, Piece};
use crate::engine::{Batch, Engine, EngineError, RowChange};

/// Puts everything an archive holds into an engine. Blocking.
///
/// # Errors
/// What the engine says; `Damaged` for an archive that is not whole, `Failed` for one that cannot be read.
pub fn load(archive: &mut ArchiveReader, engine: &dyn Engine) -> Result<(), EngineError> {
    let unreadable = |error| match error {
        ArchiveError::Io(error) => EngineError::Failed(format!("checkpoint: {error}")),
        damaged => EngineError::Damaged(format!("checkpoint: {damaged}")),
    };
    while let Some(piece) = archive.next_piece().map_err(unreadable)? {
        let mut batch = Batch::default();
        match piece {
            Piece::Records(records) => batch.records = records,
            Piece::Rows(rows) => {
                batch.rows = rows
                    .into_iter()
                    .map(|(table, key, value)| RowChange {
                        table,
                        key,
                        value: Some(value),
                    })
                    .collect();
            }
        }
        engine.commit(&batch)?;
    }
    Ok(())
}
