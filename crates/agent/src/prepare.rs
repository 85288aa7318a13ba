//! The steps `prepare` and `drop_caches`, as jobs for a thread.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use venturi_plan::{Cache, CacheState, Dataset, Finding, PrepareStep};

use crate::cache::{self, COLD_RATIO, Residency, WARM_RATIO};
use crate::dataset::{Progress, Wanted};
use crate::findings;
use crate::places::Places;
use crate::pulse::Pulse;

/// More threads than this do not write or read faster on any file system that we know, and take cores from others.
const MOST_THREADS: usize = 8;

/// One preparation at a time: it uses every core and the whole disk, and two actors that want the same set would both
/// make it.
static TURN: Mutex<()> = Mutex::new(());

/// What came of a preparation.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    /// The kind and particulars of the event to tell.
    pub(crate) event: Option<(&'static str, BTreeMap<String, Value>)>,
    pub(crate) cache: Option<CacheState>,
    pub(crate) findings: Vec<Finding>,
    /// The trial cannot be a good one any more.
    pub(crate) failed: bool,
}

/// Files of a data set on this host.
#[derive(Debug)]
pub(crate) struct Files {
    dataset: String,
    wanted: Wanted,
    pulse: Arc<Pulse>,
}

impl Files {
    /// The files that a step names; an error text when the plan has no such data set or it is not on this host.
    pub(crate) fn locate(
        places: &Places<'_>,
        name: &str,
        (first, files): (u64, u64),
        pulse: &Arc<Pulse>,
    ) -> Result<Self, String> {
        let dataset: &Dataset = places
            .header()
            .datasets
            .get(name)
            .ok_or_else(|| format!("expected a data set `{name}` in the plan, found none"))?;
        let place = places.header().places.get(&dataset.place);
        let place = place.ok_or_else(|| {
            format!(
                "data set `{name}`: expected a place `{}`, found none",
                dataset.place
            )
        })?;
        let root = places.root(&dataset.place).ok_or_else(|| {
            format!(
                "data set `{name}`: expected it on host `{}` or on one whose files are here, found it on `{}`",
                places.host(),
                place.host
            )
        })?;
        let wanted = Wanted {
            folder: root.join(&dataset.path),
            seed: dataset.seed,
            sizes: dataset.sizes(),
            first,
            files,
        };
        Ok(Self {
            dataset: name.to_owned(),
            wanted,
            pulse: Arc::clone(pulse),
        })
    }

    /// Carries out `prepare`. `tell` gets the particulars of progress, at most twice a second.
    pub(crate) fn prepare(
        &self,
        step: &PrepareStep,
        tell: &dyn Fn(BTreeMap<String, Value>),
    ) -> Prepared {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let tell = |progress: Progress| tell(self.progress_detail(progress));
        let made = match self.wanted.ensure(threads(), &self.pulse, &tell) {
            Ok(made) => made,
            Err(error) => return self.failed(&error.to_string()),
        };
        let paths = self.wanted.paths();
        let (cache, findings) = match step.cache {
            Cache::AsIs => (state("as_is", "none", None), Vec::new()),
            Cache::Warm => match cache::read_files(&paths, threads(), &self.pulse) {
                Err(error) => {
                    return self
                        .failed(&format!("cannot read the files to warm the cache: {error}"));
                }
                Ok(()) => self.judge_warm(cache::residency(&paths)),
            },
        };
        let mut detail = self.detail();
        detail.extend([
            ("made".into(), json!(made.files)),
            ("reused".into(), json!(made.reused)),
        ]);
        let event = (made.files > 0).then_some(("dataset", detail));
        Prepared {
            event,
            cache: Some(cache),
            findings,
            failed: false,
        }
    }

    /// Carries out `drop_caches`.
    pub(crate) fn drop_caches(&self) -> Prepared {
        let paths: Vec<PathBuf> = self.wanted.paths();
        let (method, seen) = match cache::drop_files(&paths, &self.pulse) {
            Ok(method) => (method.name(), cache::residency(&paths)),
            Err(error) => {
                let findings = vec![findings::drop_failed(&self.dataset, &error.to_string())];
                return Prepared {
                    cache: Some(state("as_is", "none", None)),
                    findings,
                    ..Prepared::default()
                };
            }
        };
        let ratio = seen.and_then(Residency::ratio);
        let (cache, findings) = match (seen, ratio) {
            (None, _) => (
                state("as_is", method, None),
                vec![findings::cache_unknown(&self.dataset)],
            ),
            (Some(_), Some(ratio)) if ratio >= COLD_RATIO => {
                let reached = if ratio >= WARM_RATIO { "warm" } else { "as_is" };
                (
                    state(reached, method, Some(ratio)),
                    vec![findings::cache_not_dropped(&self.dataset, ratio, method)],
                )
            }
            (Some(_), ratio) => (state("cold", method, ratio), Vec::new()),
        };
        let mut detail = self.detail();
        detail.extend([
            ("method".into(), json!(method)),
            ("resident_ratio".into(), json!(ratio)),
        ]);
        Prepared {
            event: Some(("drop_caches", detail)),
            cache: Some(cache),
            findings,
            failed: false,
        }
    }

    fn judge_warm(&self, seen: Option<Residency>) -> (CacheState, Vec<Finding>) {
        match (seen, seen.and_then(Residency::ratio)) {
            (None, _) => (
                state("as_is", "none", None),
                vec![findings::cache_unknown(&self.dataset)],
            ),
            (Some(_), Some(ratio)) if ratio < WARM_RATIO => (
                state("as_is", "none", Some(ratio)),
                vec![findings::cache_not_warm(&self.dataset, ratio)],
            ),
            (Some(_), ratio) => (state("warm", "none", ratio), Vec::new()),
        }
    }

    fn failed(&self, error: &str) -> Prepared {
        let findings = vec![findings::prepare_failed(&self.dataset, error)];
        Prepared {
            findings,
            failed: true,
            ..Prepared::default()
        }
    }

    fn detail(&self) -> BTreeMap<String, Value> {
        BTreeMap::from([
            ("dataset".into(), json!(self.dataset)),
            ("first".into(), json!(self.wanted.first)),
            ("files".into(), json!(self.wanted.files)),
        ])
    }

    fn progress_detail(&self, progress: Progress) -> BTreeMap<String, Value> {
        BTreeMap::from([
            ("dataset".into(), json!(self.dataset)),
            ("files".into(), json!(progress.files)),
            ("of_files".into(), json!(progress.of_files)),
            ("bytes".into(), json!(progress.bytes)),
            ("of_bytes".into(), json!(progress.of_bytes)),
        ])
    }
}

fn state(state: &str, method: &str, resident_ratio: Option<f64>) -> CacheState {
    CacheState {
        state: state.into(),
        method: method.into(),
        resident_ratio,
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get().min(MOST_THREADS))
}
