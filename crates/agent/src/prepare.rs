//! The steps `prepare` and `drop_caches`, as jobs for a thread.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use venturi_linux::Residency;
use venturi_plan::{
    Cache, CacheState, Dataset, DatasetFiles, Finding, Name, OperationEvent, PrepareOutcome,
};

use crate::activity::ActivityMonitor;
use crate::cache::{self, COLD_RATIO, WARM_RATIO};
use crate::dataset::{RequestedFiles, WriteProgress};
use crate::findings;
use crate::storages::{Storages, shown_host, utf8};

/// Maximum number of threads. On all tested file systems, more threads are not faster, and they
/// take cores from other processes.
const MAX_THREADS: usize = 8;

/// Take the turn to create a dataset. Only one dataset per process at a time, because it uses all
/// cores and the whole disk.
pub(crate) fn take_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Files of a dataset that a preparation needs.
#[derive(Debug)]
pub(crate) struct Files {
    dataset: Name,
    requested: RequestedFiles,
    activity: Arc<ActivityMonitor>,
}

/// Find the files of a dataset in a step, and their host if this agent does not see them.
///
/// # Errors
/// A message if the plan has no such dataset, or operations on its storage are impossible.
pub(crate) fn locate(
    storages: &Storages<'_>,
    name: &Name,
    (first, files): (u64, u64),
) -> Result<(Option<Name>, DatasetFiles), String> {
    let dataset: &Dataset = storages
        .header()
        .datasets
        .get(name)
        .ok_or_else(|| format!("expected a dataset `{name}` in the plan, found none"))?;
    let storage = storages.header().storages.get(&dataset.storage);
    let storage = storage.ok_or_else(|| {
        format!(
            "dataset `{name}`: expected a storage `{}` in the plan, found none",
            dataset.storage
        )
    })?;
    let root = storages.root(&dataset.storage).ok_or_else(|| {
        format!(
            "dataset `{name}`: expected its storage on host `{}` or on a host that the controller reaches, \
             found it on {}",
            storages.host(),
            shown_host(storage.host.as_deref())
        )
    })?;
    let names = dataset.names.iter();
    let range = (usize::try_from(first), usize::try_from(files));
    let (Ok(skipped), Ok(taken)) = range else {
        return Err(format!(
            "dataset `{name}`: expected fewer files, found {first} and {files}"
        ));
    };
    let directory = if dataset.path.is_empty() {
        root.path
    } else {
        root.path.join(&dataset.path)
    };
    let files = DatasetFiles {
        dataset: name.clone(),
        directory: utf8(&directory)?.to_owned(),
        names: names.skip(skipped).take(taken).cloned().collect(),
        seed: dataset.seed,
        sizes: dataset.sizes(),
        first,
        files,
    };
    Ok((root.host, files))
}

impl Files {
    /// Files that a preparation on this machine needs.
    pub(crate) fn new(files: &DatasetFiles, activity: &Arc<ActivityMonitor>) -> Self {
        Self {
            dataset: files.dataset.clone(),
            requested: RequestedFiles {
                directory: PathBuf::from(&files.directory),
                seed: files.seed,
                sizes: files.sizes.clone(),
                first: files.first,
                files: files.files,
                names: files.names.clone(),
            },
            activity: Arc::clone(activity),
        }
    }

    /// Executes `prepare`, in turn ([`take_turn`]). `report` gets details of the progress, at most
    /// twice a second.
    pub(crate) fn prepare(
        &self,
        cache: Cache,
        report: &dyn Fn(BTreeMap<String, Value>),
    ) -> PrepareOutcome {
        let report = |progress: WriteProgress| report(self.progress_detail(progress));
        let sizes = match self.requested.existing_sizes() {
            Ok(sizes) => sizes,
            Err(error) => return self.failed(&error.to_string()),
        };
        let stats = match self.requested.ensure(threads(), &self.activity, &report) {
            Ok(stats) => stats,
            Err(error) => return self.failed(&error.to_string()),
        };
        let paths = self.requested.paths();
        let (cache, findings) = match cache {
            Cache::AsIs => (state("as_is", "none", None), Vec::new()),
            Cache::Warm => match cache::read_files(&paths, threads(), &self.activity) {
                Err(error) => {
                    return self
                        .failed(&format!("cannot read the files to warm the cache: {error}"));
                }
                Ok(()) => self.check_warm(cache::residency(&paths)),
            },
        };
        let mut detail = self.detail();
        detail.extend([
            ("made".into(), json!(stats.files)),
            ("reused".into(), json!(stats.reused)),
        ]);
        let event = (stats.files > 0).then(|| event("dataset", detail));
        PrepareOutcome {
            event,
            cache: Some(cache),
            findings,
            failed: false,
            sizes,
        }
    }

    /// Executes `drop_caches`.
    pub(crate) fn drop_caches(&self) -> PrepareOutcome {
        let paths: Vec<PathBuf> = self.requested.paths();
        let (method, seen) = match cache::drop_files(&paths, &self.activity) {
            Ok(method) => (method.name(), cache::residency(&paths)),
            Err(error) => {
                let findings = vec![findings::drop_failed(&self.dataset, &error.to_string())];
                return PrepareOutcome {
                    cache: Some(state("as_is", "none", None)),
                    findings,
                    ..PrepareOutcome::default()
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
        PrepareOutcome {
            event: Some(event("drop_caches", detail)),
            cache: Some(cache),
            findings,
            ..PrepareOutcome::default()
        }
    }

    fn check_warm(&self, seen: Option<Residency>) -> (CacheState, Vec<Finding>) {
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

    fn failed(&self, error: &str) -> PrepareOutcome {
        let findings = vec![findings::prepare_failed(&self.dataset, error)];
        PrepareOutcome {
            findings,
            failed: true,
            ..PrepareOutcome::default()
        }
    }

    fn detail(&self) -> BTreeMap<String, Value> {
        BTreeMap::from([
            ("dataset".into(), json!(&*self.dataset)),
            ("first".into(), json!(self.requested.first)),
            ("files".into(), json!(self.requested.files)),
        ])
    }

    fn progress_detail(&self, progress: WriteProgress) -> BTreeMap<String, Value> {
        BTreeMap::from([
            ("dataset".into(), json!(&*self.dataset)),
            ("files".into(), json!(progress.files)),
            ("of_files".into(), json!(progress.of_files)),
            ("bytes".into(), json!(progress.bytes)),
            ("of_bytes".into(), json!(progress.of_bytes)),
        ])
    }
}

fn event(kind: &str, detail: BTreeMap<String, Value>) -> OperationEvent {
    OperationEvent {
        kind: kind.into(),
        detail,
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
    std::thread::available_parallelism().map_or(1, |count| count.get().min(MAX_THREADS))
}
