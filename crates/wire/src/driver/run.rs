//! The loop that moves packets.
//!
//! The data path: one thread, or two if one is not enough, no allocation for a packet, nothing that may block for long. One turn: hand over what
//! is due, sleep or look until a packet comes or the next is due, read what has come, a few from each interface, and
//! look for what is due after each.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::sys::epoll::Epoll;
use serde_json::json;
use venturi_plan::{Event, LinkSet, Name, Seconds};

use super::buffers::Buffers;
use super::capture::Capture;
use super::clock::{Clock, cpu_ns};
use super::interface::Interface;
use super::machine;
use super::output::{Broken, Counters, Message, Outbox};
use super::patience::{Patience, Wait};
use super::report::{self, Punctuality};
use super::tun::Tun;
use super::writer::{Writer, Written};
use crate::Error;
use crate::model::{InterfaceId, LinkCounters, LinkId, Output, World};
use crate::packet::{Refusal, inspect, too_big};
use crate::protocol::{Done, Lateness, LinkTotals, Record};

/// Packets that are read from one interface before the others have their turn.
const READS_A_TURN: usize = 16;
/// Deliveries in a row before interfaces are read again.
const DELIVERIES_A_TURN: usize = 32;
/// Deliveries after each packet that was read.
const DELIVERIES_A_READ: usize = 4;
const SECOND_NS: u64 = 1_000_000_000;
/// How often what was captured goes to the file if there is little of it.
const CAPTURE_FLUSH_NS: u64 = 250_000_000;
/// How often to look how crowded the machine is. Not a reason to wake up.
const READING_NS: u64 = 100_000_000;

pub(crate) struct Run {
    pub(crate) clock: Clock,
    world: World,
    interfaces: Arc<[Interface]>,
    // Before the memory that it reads.
    writer: Writer,
    buffers: Buffers,
    patience: Patience,
    punctuality: Punctuality,
    counts: Counts,
    /// Whether the clock of the planned changes runs.
    gone: bool,
    captures: BTreeMap<LinkId, Capture>,
    /// Captures that have ended, whose files may not be whole yet.
    ending: Vec<JoinHandle<()>>,
    outbox: Outbox,
    ticks: Ticks,
    /// High-water marks of the queues from the beginning.
    high_bytes: Vec<u64>,
}

/// What happens again and again.
struct Ticks {
    interval_ns: Option<u64>,
    next_sample_ns: u64,
    next_second_ns: u64,
    next_flush_ns: u64,
    next_reading_ns: u64,
}

/// Packets that did not get into the network, or out of it.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    not_ipv4: u64,
    multicast: u64,
    malformed: u64,
    too_big: u64,
    no_memory: u64,
    refused: u64,
}

/// An interface of the network as the loop needs it.
pub(crate) struct Opened {
    pub(crate) tun: Tun,
    pub(crate) offload: bool,
    pub(crate) mtu: u32,
}

impl Run {
    pub(crate) fn new(
        clock: Clock,
        world: World,
        opened: Vec<Opened>,
        buffers: Buffers,
        outbox: Outbox,
        interval_ns: Option<u64>,
        patience: Patience,
    ) -> io::Result<Self> {
        let mtu =
            |id: InterfaceId| u16::try_from(opened[usize::from(id.0)].mtu).unwrap_or(u16::MAX);
        let mtus: Vec<Vec<u16>> = (0..)
            .map(InterfaceId)
            .take(opened.len())
            .map(|from| {
                let exits = world.destinations().map(|to| world.exit(from, to));
                exits.map(|exit| exit.map_or(u16::MAX, &mtu)).collect()
            })
            .collect();
        let now_ns = clock.now_ns();
        let interfaces: Arc<[Interface]> = opened
            .into_iter()
            .zip(mtus)
            .map(|(opened, mtus)| Interface {
                tun: opened.tun,
                joins: opened.offload,
                mtus,
            })
            .collect();
        Ok(Self {
            writer: Writer::start(clock, Arc::clone(&interfaces))?,
            punctuality: Punctuality::new(world.extremes()),
            high_bytes: vec![0; world.link_names().len()],
            interfaces,
            patience,
            counts: Counts::default(),
            gone: false,
            captures: BTreeMap::new(),
            ending: Vec::new(),
            ticks: Ticks {
                interval_ns,
                next_sample_ns: interval_ns.map_or(u64::MAX, |interval_ns| now_ns + interval_ns),
                next_second_ns: now_ns + SECOND_NS,
                next_flush_ns: u64::MAX,
                next_reading_ns: now_ns,
            },
            clock,
            world,
            buffers,
            outbox,
        })
    }

    /// Hands over what is due and says how to wait for what comes next.
    pub(crate) fn proceed(&mut self) -> Result<(u64, Wait), Broken> {
        self.deliver(DELIVERIES_A_TURN)?;
        let now_ns = self.clock.now_ns();
        self.tick(now_ns)?;
        let due_ns = self.world.poll_timeout();
        let ticks = &self.ticks;
        let tick_ns = ticks
            .next_sample_ns
            .min(ticks.next_second_ns)
            .min(ticks.next_flush_ns);
        Ok(match self.patience.wait(now_ns, due_ns) {
            // Nobody minds a sample that is some microseconds late.
            Wait::Sleep { until_ns } => (
                now_ns,
                Wait::Sleep {
                    until_ns: until_ns.min(tick_ns),
                },
            ),
            look @ Wait::Look => (now_ns, look),
        })
    }

    /// A sleep is over.
    #[inline]
    pub(crate) fn slept(&mut self) {
        self.patience.slept(self.clock.now_ns());
    }

    /// Reads what has come from the host of an interface. False: the device is gone.
    pub(crate) fn read(&mut self, number: u16) -> Result<bool, Broken> {
        for _ in 0..READS_A_TURN {
            let tun = &self.interfaces[usize::from(number)].tun;
            let Some(spare) = self.buffers.spare() else {
                // All of the memory for packets is in flight. What comes now has to go, and be counted.
                self.counts.no_memory += u64::from(tun.discard());
                return Ok(true);
            };
            // Before the read, which takes a while: by then the packet had come.
            let came_ns = self.clock.now_ns();
            match tun.read(spare) {
                Ok(length) => self.take_in(came_ns, InterfaceId(number), length)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Listens no more to an interface whose device is gone.
    pub(crate) fn forget(&self, number: u16, epoll: &Epoll) {
        let _ = epoll.delete(&self.interfaces[usize::from(number)].tun); // gone already is as good
    }

    /// Gives the packet that was read to the network.
    #[inline]
    fn take_in(&mut self, came_ns: u64, from: InterfaceId, length: usize) -> Result<(), Broken> {
        self.patience.happened(came_ns);
        let bytes = self.buffers.read(length);
        match inspect(bytes) {
            Ok(packet) => {
                let destination = self.world.destination(packet.destination);
                let interface = &self.interfaces[usize::from(from.0)];
                let mtu = interface.mtus[destination.index()];
                if packet.shape.longest_bytes() > mtu {
                    self.counts.too_big += u64::from(packet.shape.segments);
                    if packet.dont_fragment {
                        // Being refused is its host's affair.
                        let _ = interface.tun.write(&too_big(bytes, mtu));
                    }
                    return Ok(());
                }
                let kept = self.buffers.keep(length, packet.shape.segments);
                self.world
                    .handle_packet(came_ns, from, kept, packet.shape, destination);
            }
            Err(Refusal::Protocol) => self.counts.not_ipv4 += 1,
            Err(Refusal::Multicast) => self.counts.multicast += 1,
            Err(Refusal::Malformed) => self.counts.malformed += 1,
        }
        self.deliver(DELIVERIES_A_READ)
    }

    /// Hands over what is due, up to so many times.
    #[inline]
    fn deliver(&mut self, most: usize) -> Result<(), Broken> {
        self.take_note();
        let mut done = 0;
        while done < most {
            let now_ns = self.clock.now_ns();
            match self.world.poll(now_ns) {
                None => break,
                Some(Output::Deliver {
                    interface,
                    due_ns,
                    chunk,
                }) => {
                    self.patience.happened(now_ns);
                    done += 1;
                    // In order: as long as the writer has something, it has all that follows.
                    let is_helped = self.patience.is_helped() || self.writer.is_busy();
                    while is_helped && !self.writer.has_room() {
                        if let Some(written) = self.writer.wait() {
                            self.note(&written);
                        }
                    }
                    let bytes = self.buffers.bytes(chunk.packet);
                    if is_helped {
                        // SAFETY: the packet is released when the writer has told that it is written.
                        unsafe { self.writer.write(bytes, interface, chunk, due_ns) };
                        continue;
                    }
                    let late_ns = now_ns.saturating_sub(due_ns);
                    let refused =
                        self.interfaces[usize::from(interface.0)].hand_over(bytes, &chunk);
                    self.note(&Written {
                        chunk,
                        late_ns,
                        refused,
                    });
                }
                Some(Output::Drop(chunk)) => self.buffers.release(chunk.packet, chunk.count),
                Some(Output::Capture { link, sent }) => {
                    if let Some(capture) = self.captures.get_mut(&link) {
                        let bytes = self.buffers.bytes(sent.chunk.packet);
                        capture.add(&sent, bytes, &self.clock);
                    }
                }
                Some(Output::Changed { time_ns, link, set }) => {
                    self.tell_change(time_ns, link, &set)?
                }
            }
        }
        Ok(())
    }

    /// Takes note of what the writer has done.
    #[inline]
    fn take_note(&mut self) {
        while let Some(written) = self.writer.written() {
            self.note(&written);
        }
    }

    /// A delivery was made.
    #[inline]
    fn note(&mut self, written: &Written) {
        self.punctuality.recent.add(written.late_ns);
        self.counts.refused += written.refused;
        let chunk = &written.chunk;
        self.buffers.release(chunk.packet, chunk.count);
    }

    /// Starts the clock of the planned changes at `elapsed`, once.
    pub(crate) fn go(&mut self, elapsed: Seconds) -> Result<(), Error> {
        if elapsed < Seconds::ZERO {
            return Err(Error::Order {
                command: "go",
                expected: "an `elapsed_s` that is not negative".into(),
                found: elapsed.to_string(),
            });
        }
        if std::mem::replace(&mut self.gone, true) {
            return Err(Error::Order {
                command: "go",
                expected: "`go` once".into(),
                found: "it again".into(),
            });
        }
        let now_ns = self.clock.now_ns();
        self.world.go(now_ns, elapsed);
        Ok(())
    }

    /// Changes a link now.
    pub(crate) fn change(
        &mut self,
        link: &Name,
        set: &LinkSet,
    ) -> Result<Result<(), Error>, Broken> {
        let id = match self.link("change", link) {
            Ok(id) => id,
            Err(error) => return Ok(Err(error)),
        };
        let now_ns = self.clock.now_ns();
        match self.world.handle_change(now_ns, id, set) {
            Ok(()) => self.tell_change(now_ns, id, set).map(Ok),
            Err(error) => Ok(Err(error)),
        }
    }

    fn tell_change(&self, time_ns: u64, link: LinkId, set: &LinkSet) -> Result<(), Broken> {
        let link = &*self.world.link_names()[usize::from(link.0)];
        let detail = [("link", json!(link)), ("set", json!(set))];
        self.outbox.send(Record::Event(Event {
            time_s: self.clock.run_s(time_ns),
            kind: "network-change".into(),
            detail: detail.map(|(key, value)| (key.to_owned(), value)).into(),
        }))
    }

    /// Begins to write what passes a link to a file.
    pub(crate) fn capture(
        &mut self,
        link: &Name,
        path: std::path::PathBuf,
        snap_bytes: Option<u32>,
    ) -> Result<(), Error> {
        let id = self.link("capture", link)?;
        if self.captures.contains_key(&id) {
            return Err(Error::Order {
                command: "capture",
                expected: "a link without a capture".into(),
                found: format!("`{link}`, which has one; `capture_stop` ends it"),
            });
        }
        let capture = Capture::start(
            link.clone(),
            path,
            snap_bytes,
            self.clock,
            self.outbox.clone(),
        );
        let capture = capture.map_err(|source| Error::System {
            expected: "a thread for a capture",
            source,
        })?;
        let now_ns = self.clock.now_ns();
        self.captures.insert(id, capture);
        self.world.capture(now_ns, id, true);
        self.ticks.next_flush_ns = now_ns + CAPTURE_FLUSH_NS;
        Ok(())
    }

    /// Ends the capture of a link.
    pub(crate) fn capture_stop(&mut self, link: &Name) -> Result<Result<(), Error>, Broken> {
        let id = match self.link("capture_stop", link) {
            Ok(id) if self.captures.contains_key(&id) => id,
            Ok(_) => {
                return Ok(Err(Error::Order {
                    command: "capture_stop",
                    expected: "a link with a capture".into(),
                    found: format!("`{link}`, which has none"),
                }));
            }
            Err(error) => return Ok(Err(error)),
        };
        self.end_capture(id)?;
        Ok(Ok(()))
    }

    fn end_capture(&mut self, id: LinkId) -> Result<(), Broken> {
        let now_ns = self.clock.now_ns();
        self.world.capture(now_ns, id, false);
        // What has passed until now is still to come out of the model.
        self.deliver(usize::MAX)?;
        if let Some(capture) = self.captures.remove(&id) {
            self.ending.push(capture.finish());
        }
        Ok(())
    }

    fn link(&self, command: &'static str, name: &Name) -> Result<LinkId, Error> {
        self.world.link(name).ok_or_else(|| Error::Order {
            command,
            expected: "the name of a link".into(),
            found: format!("`{name}`"),
        })
    }

    /// Samples, seconds and files, when it is time for them.
    #[inline]
    fn tick(&mut self, now_ns: u64) -> Result<(), Broken> {
        if now_ns >= self.ticks.next_sample_ns {
            self.sample(now_ns)?;
            // A sample that was missed is left out, not made up for.
            let interval_ns = self.ticks.interval_ns.unwrap_or(u64::MAX);
            while self.ticks.next_sample_ns <= now_ns {
                self.ticks.next_sample_ns = self.ticks.next_sample_ns.saturating_add(interval_ns);
            }
        }
        if now_ns >= self.ticks.next_second_ns {
            self.punctuality.second_passed();
            self.ticks.next_second_ns = now_ns + SECOND_NS;
        }
        if now_ns >= self.ticks.next_reading_ns {
            self.patience
                .see_running(now_ns, machine::running_threads());
            self.ticks.next_reading_ns = now_ns + READING_NS;
        }
        if now_ns >= self.ticks.next_flush_ns {
            self.captures.values_mut().for_each(Capture::flush);
            self.ticks.next_flush_ns = if self.captures.is_empty() {
                u64::MAX
            } else {
                now_ns + CAPTURE_FLUSH_NS
            };
        }
        Ok(())
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "samples are numbers of JSON: exact up to 2^53"
    )]
    fn sample(&mut self, now_ns: u64) -> Result<(), Broken> {
        let links = self.take_counters(now_ns);
        let recent = &self.punctuality.recent;
        let seconds = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e9);
        let counts = self.counts;
        let awake_ns = self.patience.awake_cpu_ns();
        let wire = vec![
            ("wire.late_p50_s", seconds(recent.quantile_ns(0.5))),
            ("wire.late_p99_s", seconds(recent.quantile_ns(0.99))),
            ("wire.late_max_s", seconds(recent.largest_ns())),
            (
                "wire.cpu_s",
                seconds(Some(cpu_ns().saturating_sub(awake_ns))),
            ),
            ("wire.awake_cpu_s", seconds(Some(awake_ns))),
            ("wire.packets_held", Some(self.buffers.in_use() as f64)),
            ("wire.unrouted", Some(self.world.counts().unrouted as f64)),
            ("wire.too_big", Some(counts.too_big as f64)),
            ("wire.not_ipv4", Some(counts.not_ipv4 as f64)),
            ("wire.multicast", Some(counts.multicast as f64)),
            ("wire.malformed", Some(counts.malformed as f64)),
            ("wire.no_memory", Some(counts.no_memory as f64)),
            ("wire.refused", Some(counts.refused as f64)),
        ];
        self.punctuality.sampled();
        self.outbox.offer(Counters {
            time_s: self.clock.run_s(now_ns),
            links,
            wire,
        })
    }

    /// The counters of the links, with the high-water marks since they were last taken.
    fn take_counters(&mut self, now_ns: u64) -> Vec<LinkCounters> {
        let links = self.world.counters(now_ns);
        self.world.restart_high_water(now_ns);
        for (high, link) in self.high_bytes.iter_mut().zip(&links) {
            *high = link.queue_high_bytes.max(*high);
        }
        links
    }

    /// The end: a last sample, the doubts, `done` if it was asked for.
    pub(crate) fn finish(mut self, done: bool) -> Result<(), Broken> {
        for link in self.captures.keys().copied().collect::<Vec<_>>() {
            self.end_capture(link)?;
        }
        for thread in std::mem::take(&mut self.ending) {
            let _ = thread.join(); // a panic there was told on stderr
        }
        while let Some(written) = self.writer.wait() {
            self.note(&written);
        }
        let now_ns = self.clock.now_ns();
        if self.ticks.interval_ns.is_some() {
            self.sample(now_ns)?;
        }
        let links = self.take_counters(now_ns);
        let (lateness, late) = self.punctuality.judge();
        let lateness = Lateness::from(lateness);
        for finding in late
            .into_iter()
            .chain(report::no_memory(self.counts.no_memory))
        {
            self.outbox.send(Record::Finding(finding))?;
        }
        self.outbox.pass(Message::Overruns)?;
        if done {
            let names = self.world.link_names().iter().cloned();
            let totals = links.iter().zip(&self.high_bytes);
            self.outbox.send(Record::Done(Done {
                time_s: self.clock.run_s(now_ns),
                links: names
                    .zip(totals.map(|(link, high)| LinkTotals::new(link, *high)))
                    .collect(),
                lateness,
            }))?;
        }
        Ok(())
    }
}
