//! Prefetching of data that will be read soon.
//!
//! With 100,000 live flows, an event reads a few scattered locations in tens of megabytes, and
//! waits for them longer than it computes. Data prefetched at least one event earlier has arrived
//! when it is read. An early read would wait instead, because CPUs retire instructions in order.

/// Prefetch an item, if it exists. This changes only the duration of its next use.
#[inline]
pub(crate) fn fetch<Item>(items: &[Item], at: usize) {
    if let Some(item) = items.get(at) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the prefetch has no visible effect and never faults; SSE is part of x86_64.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(item).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = item;
    }
}
