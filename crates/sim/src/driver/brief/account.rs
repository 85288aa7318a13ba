//! What one transfer's time went to, where somebody asks that of each.

use crate::driver::meters::Times;
use crate::driver::walk::{Cause, Causes, add};
use crate::world::Stage;

/// Time by what it went to, and what had bound the class of the present flow before it began.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub causes: Causes,
    pub before: Times,
}

impl Account {
    /// A stage without bytes took so long.
    pub fn spent(&mut self, stage: &Stage, s: f64) {
        if let Some(why) = stage.name() {
            add(&mut self.causes, Cause::Named(why), s);
        }
    }

    /// Bytes that are capped by this have moved, bound by these.
    pub fn moved(&mut self, cap: &'static str, times: Times) {
        for (bound, s) in times {
            add(&mut self.causes, Cause::of(bound, cap), s);
        }
    }
}
