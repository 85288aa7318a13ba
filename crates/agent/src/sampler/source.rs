//! A file of the kernel with counters, and its parser.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::SampledCounters;

/// Initial size of a buffer; most files are shorter.
const FIRST_BUFFER_BYTES: usize = 4 * 1024;

/// Adds the counters of a text to a sample.
pub(super) type Parse = Box<dyn FnMut(&str, &mut SampledCounters) + Send>;

/// One file of the kernel, which stays open and is read from its start each time.
pub(super) struct CounterFile {
    file: File,
    buffer: Vec<u8>,
    parse: Parse,
}

impl CounterFile {
    /// Open a file whose first reading succeeds.
    ///
    /// # Errors
    /// The path and the reason, if the kernel does not offer the file.
    pub(super) fn open(
        path: impl AsRef<Path>,
        parse: impl FnMut(&str, &mut SampledCounters) + Send + 'static,
    ) -> Result<Self, String> {
        let path = path.as_ref();
        let reason = |error: std::io::Error| format!("{}: {error}", path.display());
        let file = File::open(path).map_err(reason)?;
        // The file can exist although the kernel rejects reads: `/proc/pressure` with `psi=0`.
        file.read_at(&mut [0; 1], 0).map_err(reason)?;
        Ok(Self {
            file,
            buffer: vec![0; FIRST_BUFFER_BYTES],
            parse: Box::new(parse),
        })
    }

    /// Read the file and add its counters.
    pub(super) fn read_into(&mut self, counters: &mut SampledCounters) {
        let mut buffered = 0;
        loop {
            if buffered == self.buffer.len() {
                self.buffer.resize(buffered * 2, 0);
            }
            match self
                .file
                .read_at(&mut self.buffer[buffered..], buffered as u64)
            {
                Ok(0) => break,
                Ok(count) => buffered += count,
                Err(_) => return,
            }
        }
        if let Ok(text) = std::str::from_utf8(&self.buffer[..buffered]) {
            (self.parse)(text, counters);
        }
    }
}

/// Add a counter, if its text is a number, in units of `1 / per_unit`.
pub(super) fn put(name: String, text: &str, per_unit: f64, counters: &mut SampledCounters) {
    if let Ok(value) = text.trim().parse::<f64>() {
        counters.insert(name.into(), value / per_unit);
    }
}
