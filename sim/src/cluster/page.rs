//! Room `sim`, cluster: its run as a page.

use super::Cluster;
use crate::chronicle::What;
use crate::html::Page;

impl Cluster {
    /// What happened so far, as a page of HTML that stands alone: members and their roles, faults, the clients'
    /// calls, and the promise that was broken, if one was.
    pub fn html(&self) -> String {
        let chronicle = self.chronicle();
        let violation = chronicle
            .happenings()
            .iter()
            .rev()
            .find_map(|h| match &h.what {
                What::Violation(text) => Some(text.clone()),
                _ => None,
            });
        let page = Page {
            seed: self.seed(),
            replay: format!("Cluster::new({})", self.seed()),
            facts: vec![("members".to_owned(), self.members().len().to_string())],
            members: self.members(),
            chronicle,
            calls: self.calls.all(),
            end: self.now().as_nanos() as u64,
            violation,
        };
        page.render()
    }
}
