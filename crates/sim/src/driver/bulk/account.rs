//! Time of one transfer by cause, if each transfer is explained.

use crate::driver::meters::Times;
use crate::driver::stage_runner::{Cause, Causes, add};
use crate::world::Stage;

/// Time by cause, and the bottleneck times of the class before the current flow started.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub causes: Causes,
    pub before: Times,
}

impl Account {
    /// Add the time of a stage without bytes.
    pub fn spent(&mut self, stage: &Stage, s: f64) {
        if let Some(why) = stage.name() {
            add(&mut self.causes, Cause::Named(why), s);
        }
    }

    /// Add the bottleneck times of moved bytes; `cap` is the name of their cap.
    pub fn moved(&mut self, cap: &'static str, times: Times) {
        for (bottleneck, s) in times {
            add(&mut self.causes, Cause::of(bottleneck, cap), s);
        }
    }
}
