//! Fetching ahead what will be read soon.
//!
//! With 100,000 live flows an event reads a few places anywhere in tens of megabytes, and waits for each: longer than it computes. What is asked
//! for an event or more ahead is there when it is read. Reading it then would wait, too: processors finish instructions in their order.

/// Ask the memory for an item, if there is one: changes nothing but how long its next use takes.
#[inline]
pub(crate) fn fetch<Item>(items: &[Item], at: usize) {
    if let Some(item) = items.get(at) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: it reads nothing that the program sees, and never faults; SSE belongs to x86_64.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(item).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = item;
    }
}
