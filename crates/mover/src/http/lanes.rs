//! Several things that one thread does at a time: each goes on when it is woken, and those that wait cost next to nothing.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// What a thread does at a time.
#[derive(Default)]
pub(super) struct Lanes<'w>(Vec<Lane<'w>>);

struct Lane<'w> {
    work: Pin<Box<dyn Future<Output = ()> + 'w>>,
    bell: Arc<Bell>,
    waker: Waker,
}

/// Says which of them has something to do.
struct Bell {
    rung: AtomicBool,
    /// Who waits for all of them.
    home: Mutex<Waker>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        let home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        home.wake_by_ref();
    }
}

impl<'w> Lanes<'w> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, work: impl Future<Output = ()> + 'w) {
        let bell = Arc::new(Bell {
            rung: AtomicBool::new(true),
            home: Mutex::new(Waker::noop().clone()),
        });
        self.0.push(Lane {
            work: Box::pin(work),
            waker: Arc::clone(&bell).into(),
            bell,
        });
    }

    /// Goes on until one of them, or several, have ended.
    pub(super) async fn some_ended(&mut self) {
        std::future::poll_fn(|context| {
            let before = self.0.len();
            self.0.retain_mut(|lane| lane.poll(context).is_pending());
            match self.0.len() < before {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

impl Lane<'_> {
    fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        let home = self.bell.home.lock();
        home.unwrap_or_else(PoisonError::into_inner)
            .clone_from(context.waker());
        if !self.bell.rung.swap(false, Ordering::Acquire) {
            return Poll::Pending;
        }
        self.work
            .as_mut()
            .poll(&mut Context::from_waker(&self.waker))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::time::Duration;

    #[test]
    fn all_go_on_at_a_time_and_one_that_waits_is_not_asked() {
        const COUNT: usize = 8;
        let (ended, asked) = (Cell::new(0), Cell::new(0));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        let (meeting, meet) = (tokio::sync::Barrier::new(COUNT), Duration::from_secs(60));
        runtime.block_on(async {
            let mut lanes = Lanes::default();
            for _ in 0..COUNT {
                lanes.add(async {
                    let met = tokio::time::timeout(meet, meeting.wait());
                    let mut met = std::pin::pin!(met);
                    std::future::poll_fn(|context| {
                        asked.set(asked.get() + 1);
                        met.as_mut().poll(context)
                    })
                    .await
                    .expect("all come");
                    ended.set(ended.get() + 1);
                });
            }
            while !lanes.is_empty() {
                lanes.some_ended().await;
            }
        });
        assert_eq!(ended.get(), COUNT);
        // When it begins and when the last has come; a semaphore within the barrier may wake one in between.
        assert!(asked.get() <= 4 * COUNT, "{} for {COUNT}", asked.get());
    }
}
