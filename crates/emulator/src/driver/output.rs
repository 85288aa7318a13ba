//! Queue of records for the controller, and the thread that formats and writes them.
//!
//! A sample of a large network has thousands of numbers. Formatting them takes as long as a hundred
//! packets, so the packet thread only passes the counters on.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use serde::Serialize;
use venturi_plan::{Name, Sample, Seconds};

use super::machine;
use super::report;
use super::tun::Statistics;
use crate::model::LinkCounters;
use crate::protocol::EmulatorRecord;

/// Maximum number of records that wait for a slow reader, some minutes of records; above it,
/// samples are dropped.
const WAITING_RECORDS: usize = 4096;

/// Messages that the thread turns into lines.
#[derive(Debug)]
pub(crate) enum Message {
    /// Names of the links, and sources of the drop counters of the interfaces; sent before the
    /// first counters.
    Names(Vec<Name>, Vec<Statistics>),
    /// A complete record.
    EmulatorRecord(Box<EmulatorRecord>),
    /// Counters for a sample.
    Counters(Box<EmulatorCounters>),
    /// Check whether a ring has overflowed since `Names`, and report it.
    Overruns,
}

/// Counters at one time.
#[derive(Debug)]
pub(crate) struct EmulatorCounters {
    pub(crate) time_s: Seconds,
    pub(crate) links: Vec<LinkCounters>,
    /// Counters of the emulator as a whole, by name. None: not measured.
    pub(crate) emulator: Vec<(&'static str, Option<f64>)>,
}

/// Sender of messages, usable from any thread.
#[derive(Debug, Clone)]
pub(crate) struct Outbox(SyncSender<Message>);

/// The reader has closed the pipe.
#[derive(Debug)]
pub(crate) struct Broken;

impl Outbox {
    /// Start the thread. It ends when all outboxes are dropped, or standard output is closed.
    pub(crate) fn start() -> io::Result<(Self, JoinHandle<()>)> {
        let (sender, messages) = sync_channel(WAITING_RECORDS);
        let thread = std::thread::Builder::new()
            .name("output".into())
            .spawn(move || {
                machine::ordinary();
                // Senders detect a closed pipe, because the channel is then closed.
                let _ = write_all(&messages, io::stdout().lock());
            })?;
        Ok((Self(sender), thread))
    }

    /// Send a record that must not be lost. This waits only if the queue has thousands of records.
    pub(crate) fn send(&self, record: EmulatorRecord) -> Result<(), Broken> {
        self.pass(Message::EmulatorRecord(Box::new(record)))
    }

    /// Send a message that must not be lost.
    pub(crate) fn pass(&self, message: Message) -> Result<(), Broken> {
        self.0.send(message).map_err(|_| Broken)
    }

    /// Send counters, unless the queue is full.
    pub(crate) fn offer(&self, counters: EmulatorCounters) -> Result<(), Broken> {
        match self.0.try_send(Message::Counters(Box::new(counters))) {
            Err(TrySendError::Disconnected(_)) => Err(Broken),
            Ok(()) | Err(TrySendError::Full(_)) => Ok(()),
        }
    }
}

fn write_all(messages: &Receiver<Message>, mut sink: impl Write) -> io::Result<()> {
    let mut names = Names::default();
    let mut statistics = Vec::new();
    while let Ok(message) = messages.recv() {
        match message {
            Message::Names(links, theirs) => {
                names = Names::new(&links);
                statistics = theirs;
            }
            Message::EmulatorRecord(record) => write_line(&mut sink, &record)?,
            Message::Counters(counters) => {
                let sample = names.sample(*counters, tun_dropped(&statistics));
                write_line(&mut sink, &EmulatorRecord::Sample(sample))?;
            }
            Message::Overruns => {
                if let Some(finding) = tun_dropped(&statistics).and_then(report::overrun) {
                    write_line(&mut sink, &EmulatorRecord::Finding(finding))?;
                }
            }
        }
    }
    Ok(())
}

fn tun_dropped(statistics: &[Statistics]) -> Option<u64> {
    statistics.iter().map(Statistics::dropped).sum()
}

fn write_line(sink: &mut impl Write, record: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    sink.write_all(&line)?;
    sink.flush()
}

/// Names of the counters, formatted once.
#[derive(Debug, Default)]
struct Names {
    links: Vec<[Name; 7]>,
}

impl Names {
    fn new(links: &[Name]) -> Self {
        let of_link = |link: &Name| {
            [
                "bytes",
                "packets",
                "queue_drops",
                "loss_drops",
                "outage_drops",
                "queue_high_bytes",
                "busy_s",
            ]
            .map(|counter| format!("link.{link}.{counter}").into())
        };
        Self {
            links: links.iter().map(of_link).collect(),
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "samples are numbers of JSON: exact up to 2^53"
    )]
    fn sample(&self, counters: EmulatorCounters, tun_dropped: Option<u64>) -> Sample {
        let mut values = BTreeMap::new();
        for (names, link) in self.links.iter().zip(&counters.links) {
            let numbers = [
                link.bytes as f64,
                link.packets as f64,
                link.queue_drops as f64,
                link.loss_drops as f64,
                link.outage_drops as f64,
                link.queue_high_bytes as f64,
                link.busy_ps as f64 / 1e12,
            ];
            values.extend(names.iter().cloned().zip(numbers));
        }
        let dropped = (
            "emulator.tun_dropped",
            tun_dropped.map(|count| count as f64),
        );
        for (name, value) in counters.emulator.into_iter().chain([dropped]) {
            values.extend(value.map(|value| (Name::from(name), value)));
        }
        Sample {
            time_s: counters.time_s,
            counters: values,
        }
    }
}
