//! Counters at the interval of the plan: of network interfaces as counted by a host, and of links
//! as counted by the network emulator of a lab.

use std::collections::BTreeMap;
use std::sync::Arc;

use venturi_plan::{CounterFamily, Finding, Name, Sample, Seconds};

use super::Simulation;
use super::meters::Meters;
use super::records::{SimLine, SimRecord};
use crate::world::{LinkNumber, World};

/// Host name of the samples of links, as in a lab.
const NETWORK: &str = "network";

/// Name of the counter of active transfers.
const LIVE: &str = "transfers.live";

/// Maximum number of samples. If there are more, every other sample is dropped, and from then on
/// only every other one is taken.
pub(super) const MAX_SAMPLES: usize = 20_000;

/// Sampled counters, and the time of the next sample.
#[derive(Debug)]
pub(super) struct SimSampler {
    interval_s: f64,
    /// Only samples whose number is a multiple of this are taken.
    stride: u64,
    /// Number of the next sample.
    next: u64,
    /// A skipped sample, because nothing had moved since the previous one.
    skipped: Option<u64>,
    changed: bool,
    cards: Vec<Vec<Card>>,
    links: Vec<(LinkNumber, Name, Name)>,
    /// Whether the plan requests network interfaces.
    nic: bool,
    retained: Vec<Retained>,
}

/// All counters at one time.
#[derive(Debug, Clone)]
pub(super) struct Retained {
    number: u64,
    pub time_s: f64,
    pub payload: Box<[f64]>,
    pub busy_s: Box<[f64]>,
    pub loopback: Box<[f64]>,
}

impl Retained {
    /// Create counters before any transfer.
    pub fn nothing(links: usize, hosts: usize) -> Self {
        Self {
            number: 0,
            time_s: 0.0,
            payload: vec![0.0; links].into(),
            busy_s: vec![0.0; links].into(),
            loopback: vec![0.0; hosts].into(),
        }
    }
}

#[derive(Debug)]
struct Card {
    received: Name,
    sent: Name,
    link_in: Option<LinkNumber>,
    link_out: Option<LinkNumber>,
}

impl SimSampler {
    /// Create a sampler; `None` if the plan requests no samples.
    pub fn new(world: &World, hosts: &[Name]) -> Option<Self> {
        let measure = &world.header.measure;
        let interval_s = measure
            .interval_s
            .map(Seconds::get)
            .filter(|interval_s| *interval_s > 0.0)?;
        let nic = measure.counters.contains(&CounterFamily::Nic);
        let card = |(device, link_out, link_in): (String, _, _)| Card {
            received: format!("nic.{device}.rx_bytes").into(),
            sent: format!("nic.{device}.tx_bytes").into(),
            link_in,
            link_out,
        };
        let cards = |host: &Name| match nic {
            true => world.devices_of(host).into_iter().map(card).collect(),
            false => Vec::new(),
        };
        let links = world.links.iter().enumerate().map(|(number, link)| {
            (
                number,
                format!("link.{}.bytes", link.name).into(),
                format!("link.{}.busy_s", link.name).into(),
            )
        });
        Some(Self {
            interval_s,
            stride: 1,
            next: 0,
            skipped: None,
            changed: true,
            cards: hosts.iter().map(cards).collect(),
            links: links.collect(),
            nic,
            retained: Vec::new(),
        })
    }

    /// Start the samples at the start time of a resumed run.
    pub fn from(mut self, start_s: f64) -> Self {
        self.next = (start_s / self.interval_s).ceil() as u64;
        self
    }

    fn keep(&mut self, meters: &Meters, number: u64, time_s: f64) {
        if self.retained.len() == MAX_SAMPLES {
            self.stride *= 2;
            let stride = self.stride;
            self.retained
                .retain(|retained| retained.number.is_multiple_of(stride));
        }
        self.retained.push(Retained {
            number,
            time_s,
            payload: meters.payload.as_slice().into(),
            busy_s: meters.busy_s.as_slice().into(),
            loopback: meters.loopback.as_slice().into(),
        });
    }
}

impl Simulation {
    /// Take the samples that are due up to the next event; they do not change the simulation.
    pub(super) fn sample_until(&mut self, time_s: f64) -> Result<(), crate::world::WorldError> {
        if self.ledger.is_some() {
            self.look(time_s);
            return Ok(());
        }
        let Some(mut sampler) = self.sampler.take() else {
            return Ok(());
        };
        loop {
            if self.meters.is_idle() && !sampler.changed {
                // No flow is active: all samples but the last equal the first.
                let last = (time_s / sampler.interval_s) as u64 / sampler.stride * sampler.stride;
                if last >= sampler.next {
                    sampler.skipped = Some(last);
                    sampler.next = last + sampler.stride;
                }
                break;
            }
            let due_s = sampler.next as f64 * sampler.interval_s;
            if due_s > time_s {
                break;
            }
            if let Some(number) = sampler.skipped.take() {
                sampler.keep(&self.meters, number, number as f64 * sampler.interval_s);
            }
            self.pass_to(due_s)?;
            sampler.changed = !self.meters.is_idle();
            let number = sampler.next;
            sampler.keep(&self.meters, number, due_s);
            sampler.next = (number / sampler.stride + 1) * sampler.stride;
        }
        self.sampler = Some(sampler);
        Ok(())
    }

    /// Note that a flow starts, so the next sample will differ.
    pub(super) fn note_change(&mut self) {
        if let Some(sampler) = &mut self.sampler {
            sampler.changed = true;
        }
    }

    /// Report all samples at the end, when their number is known.
    pub(super) fn report_samples(&mut self) {
        let Some(mut sampler) = self.sampler.take() else {
            return;
        };
        let report_finding = if let Some(ledger) = self.ledger.take() {
            for (retained, live) in ledger.retained(self.now) {
                self.report_sample(&sampler, &retained, Some(live));
            }
            ledger.report_finding(self.now)
        } else {
            let next = sampler.next;
            sampler.keep(&self.meters, next, self.now);
            for retained in &sampler.retained {
                self.report_sample(&sampler, retained, None);
            }
            (sampler.stride > 1).then(|| thinned(self.now, sampler.interval_s, sampler.stride))
        };
        self.out.extend(report_finding.map(|finding| SimLine {
            host: Arc::from(NETWORK),
            record: SimRecord::Finding(finding),
        }));
    }

    /// Report one sample. `live`: number of active transfers, if they are not recorded
    /// individually.
    fn report_sample(&mut self, sampler: &SimSampler, retained: &Retained, live: Option<u64>) {
        let time_s = Seconds::new(retained.time_s);
        if sampler.nic {
            self.report_interfaces(sampler, retained);
        }
        if sampler.links.is_empty() && live.is_none() {
            return;
        }
        let both = sampler.links.iter().flat_map(|(number, bytes, busy)| {
            let passed = retained.payload[*number] * self.world.links[*number].wire_ratio;
            [
                (bytes.clone(), passed.round()),
                (busy.clone(), retained.busy_s[*number]),
            ]
        });
        let live = live.map(|live| (LIVE.into(), live as f64));
        let record = SimRecord::Sample(Sample {
            time_s,
            counters: both.chain(live).collect(),
        });
        self.out.push_back(SimLine {
            host: Arc::from(NETWORK),
            record,
        });
    }
}

impl Simulation {
    /// Report the counters of the network interfaces of each host.
    fn report_interfaces(&mut self, sampler: &SimSampler, retained: &Retained) {
        let time_s = Seconds::new(retained.time_s);
        let over = |world: &World, link: Option<LinkNumber>| {
            link.map_or(0.0, |link| {
                retained.payload[link] * world.links[link].packet_ratio
            })
        };
        for (host, cards) in sampler.cards.iter().enumerate() {
            let both = cards.iter().flat_map(|card| {
                [
                    (
                        card.received.clone(),
                        over(&self.world, card.link_in).round(),
                    ),
                    (card.sent.clone(), over(&self.world, card.link_out).round()),
                ]
            });
            let mut counters: BTreeMap<Name, f64> = both.collect();
            let own = retained.loopback[host].round();
            counters.insert(self.lo.0.clone(), own);
            counters.insert(self.lo.1.clone(), own);
            self.push(host, SimRecord::Sample(Sample { time_s, counters }));
        }
    }
}

/// Return a finding that there are fewer samples than the plan requests.
pub(super) fn thinned(end_s: f64, interval_s: f64, stride: u64) -> Finding {
    Finding {
        code: "samples-thinned".into(),
        subject: NETWORK.into(),
        evidence: format!(
            "{end_s} s with samples every {interval_s} s exceed {MAX_SAMPLES} samples; the results \
             contain one of {stride}"
        ),
        advice:
            "set a longer measure.interval, or use a shorter plan; totals are exact in both cases"
                .into(),
    }
}
