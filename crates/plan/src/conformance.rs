//! Conformance suite for drivers of the interpreter: small plans, each with the order of its events.
//!
//! A driver records its outputs and inputs in a [`Trace`] and compares it with the [`Case`]. Only
//! the order that the plan defines is compared: within an actor, within each child of a `parallel`,
//! and between fibers that wait for a counter or a pool.
//!
//! Indentation defines an expected order: lines below `in order` have this order, lines below `any
//! order` have any order, and each block counts as one line of the surrounding block. After the
//! first block, more blocks can define the order of some of its lines across blocks.

use std::collections::BTreeMap;

use crate::{Error, InterpreterInput, InterpreterOutput, Plan, TaskId, Transfer, TrialRef};

/// A tool that does not exist on any machine; drivers must report it as missing.
pub const MISSING_TOOL: &str = "venturi-no-such-tool";

/// A file size that does not fit on any machine; drivers must report that the dataset cannot be
/// created.
pub const IMPOSSIBLE_BYTES: u64 = 1 << 60;

/// Host of all actors of the cases.
pub const HOST: &str = "here";

/// A plan and the expected events of its execution.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Name of its files.
    pub name: &'static str,
    plan: &'static str,
    expected: &'static str,
}

macro_rules! cases {
    ($($name:literal),* $(,)?) => {
        /// All cases.
        pub const CASES: &[Case] = &[$(Case {
            name: $name,
            plan: include_str!(concat!("../conformance/", $name, ".jsonl")),
            expected: include_str!(concat!("../conformance/", $name, ".expected")),
        }),*];
    };
}

cases!(
    "arrivals", "at", "barrier", "counters", "datasets", "deadline", "draws", "failed", "for",
    "nested", "pools", "reads", "repeat", "sequence", "until",
);

impl Case {
    /// The plan.
    ///
    /// # Errors
    /// None for the cases of this crate, because a test checks them.
    pub fn plan(&self) -> Result<Plan, Error> {
        Plan::read(self.plan.as_bytes())
    }

    /// Compare the recorded events with the expected ones.
    ///
    /// # Errors
    /// A message about the first missing, additional or misplaced event, with the whole trace.
    pub fn check(&self, trace: &Trace) -> Result<(), String> {
        let describe = |what: String| {
            format!(
                "{}: {what}\nseen:\n  {}",
                self.name,
                trace.lines.join("\n  ")
            )
        };
        check(self.expected, &trace.lines).map_err(describe)
    }
}

/// Events as comparable lines.
#[derive(Debug, Default)]
pub struct Trace {
    lines: Vec<String>,
    tasks: BTreeMap<TaskId, (String, String)>,
    seen: BTreeMap<String, u32>,
}

impl Trace {
    /// Record an output of the interpreter; call this immediately for every output.
    pub fn output(&mut self, output: &InterpreterOutput) {
        match output {
            InterpreterOutput::TrialStarted { trial } => self.trial(trial, "starts"),
            InterpreterOutput::TrialEnded { trial } => self.trial(trial, "ends"),
            InterpreterOutput::TrialSkipped { trial, .. } => self.trial(trial, "is skipped"),
            InterpreterOutput::TrialCut { trial } => self.trial(trial, "is cut"),
            InterpreterOutput::Arm {
                task,
                actor,
                transfer,
                intended,
                ..
            } => {
                let name = self.name(actor, &subject(transfer));
                let intended =
                    intended.map_or_else(String::new, |time| format!(" intended at {time}"));
                self.line(format!(
                    "{actor}: arm {name} {}{intended}",
                    particulars(transfer)
                ));
                self.tasks.insert(*task, (actor.to_string(), name));
            }
            InterpreterOutput::Release { tasks } => self.release(tasks),
            InterpreterOutput::Prepare {
                task,
                actor,
                prepare,
                ..
            } => {
                let what = format!(
                    "prepare {} {}+{}",
                    prepare.dataset, prepare.first, prepare.files
                );
                self.task(
                    *task,
                    actor,
                    &format!("{what} {:?}", prepare.cache).to_lowercase(),
                );
            }
            InterpreterOutput::DropCaches {
                task,
                actor,
                drop_caches: drop,
                ..
            } => {
                self.task(
                    *task,
                    actor,
                    &format!("drop_caches {} {}+{}", drop.dataset, drop.first, drop.files),
                );
            }
            InterpreterOutput::Compute {
                task,
                actor,
                core_s,
                ..
            } => self.task(*task, actor, &format!("compute {core_s}")),
            InterpreterOutput::Signal { counter, add } => {
                self.line(format!("signal {counter} +{add}"))
            }
            InterpreterOutput::Failed { error } => self.line(format!("failed: {error}")),
        }
    }

    /// Record an input of the interpreter; call this directly before every input.
    pub fn input(&mut self, input: &InterpreterInput) {
        let (task, what) = match input {
            InterpreterInput::Finished { task } => (task, "finish"),
            InterpreterInput::NotArmed { task } => (task, "cannot"),
            InterpreterInput::Failed { task } => (task, "fail"),
            // Only the driver defines when a transfer is ready, and its release shows that it is.
            InterpreterInput::Armed { .. }
            | InterpreterInput::Counter { .. }
            | InterpreterInput::EndService { .. } => return,
        };
        let (actor, name) = self.tasks.get(task).cloned().unwrap_or_default();
        self.line(format!("{actor}: {what} {name}"));
    }

    fn trial(&mut self, trial: &TrialRef, what: &str) {
        self.line(format!("{}: trial {} {what}", trial.actor, trial.trial));
    }

    fn task(&mut self, task: TaskId, actor: &str, what: &str) {
        let name = self.name(actor, what);
        self.line(format!("{actor}: {name}"));
        self.tasks.insert(task, (actor.into(), name));
    }

    fn release(&mut self, tasks: &[TaskId]) {
        let named: Vec<_> = tasks
            .iter()
            .map(|task| self.tasks.get(task).cloned().unwrap_or_default())
            .collect();
        let actor = named.first().map_or("", |(actor, _)| actor.as_str());
        let names: Vec<_> = named.iter().map(|(_, name)| name.as_str()).collect();
        self.line(format!("{actor}: release {}", names.join(", ")));
    }

    /// `s:1`, the second time `s:1 #2`.
    fn name(&mut self, actor: &str, subject: &str) -> String {
        self.number(&format!("{actor} {subject}"))
            .map_or_else(|| subject.into(), |n| format!("{subject} #{n}"))
    }

    fn line(&mut self, line: String) {
        let line = self
            .number(&line)
            .map_or_else(|| line.clone(), |n| format!("{line} #{n}"));
        self.lines.push(line);
    }

    fn number(&mut self, text: &str) -> Option<u32> {
        let seen = self.seen.entry(text.into()).or_default();
        *seen += 1;
        (*seen > 1).then_some(*seen)
    }
}

fn subject(transfer: &Transfer) -> String {
    if transfer.offset_bytes.is_some() {
        format!("read {}", transfer.source)
    } else {
        transfer.destination.to_string()
    }
}

fn particulars(transfer: &Transfer) -> String {
    let Transfer {
        call,
        source,
        bytes,
        ..
    } = transfer;
    match transfer.offset_bytes {
        Some(offset) => format!("{bytes} bytes at {offset} by {call}"),
        None => format!("{bytes} bytes from {source} by {call}"),
    }
}

#[derive(Debug)]
enum Order {
    Line(String),
    Block { in_order: bool, parts: Vec<Order> },
}

fn check(expected: &str, seen: &[String]) -> Result<(), String> {
    let blocks = parse(expected)?;
    let (whole, more) = blocks
        .split_first()
        .ok_or("expected a block `in order` or `any order`, found none")?;
    let mut positions = BTreeMap::new();
    for (position, line) in seen.iter().enumerate() {
        positions.insert(line.as_str(), position);
    }
    let mut lines = Vec::new();
    whole.lines(&mut lines);
    for line in &lines {
        positions
            .get(line)
            .ok_or_else(|| format!("expected `{line}`, not seen"))?;
    }
    if let Some(line) = seen.iter().find(|line| !lines.contains(&line.as_str())) {
        return Err(format!("not expected: `{line}`"));
    }
    if lines.len() != seen.len() {
        return Err(format!(
            "expected {} lines, all different, saw {}",
            lines.len(),
            seen.len()
        ));
    }
    std::iter::once(whole)
        .chain(more)
        .try_for_each(|block| block.span(&positions).map(drop))
}

impl Order {
    fn lines<'a>(&'a self, lines: &mut Vec<&'a str>) {
        match self {
            Self::Line(line) => lines.push(line),
            Self::Block { parts, .. } => parts.iter().for_each(|part| part.lines(lines)),
        }
    }

    /// Return the first and last position of its lines, or an error if the order differs.
    fn span(&self, positions: &BTreeMap<&str, usize>) -> Result<(usize, usize), String> {
        let (in_order, parts) = match self {
            Self::Line(line) => {
                let position = *positions
                    .get(line.as_str())
                    .ok_or_else(|| format!("expected `{line}`, not seen"))?;
                return Ok((position, position));
            }
            Self::Block { in_order, parts } => (*in_order, parts),
        };
        let mut whole: Option<(usize, usize)> = None;
        for part in parts {
            let (first, last) = part.span(positions)?;
            if let Some((_, before)) = whole.filter(|&(_, before)| in_order && before > first) {
                let line = |position| {
                    positions
                        .iter()
                        .find(|&(_, &at)| at == position)
                        .map_or("", |(line, _)| line)
                };
                return Err(format!(
                    "expected `{}` before `{}`",
                    line(before),
                    line(first)
                ));
            }
            whole = Some(whole.map_or((first, last), |(start, end)| {
                (start.min(first), end.max(last))
            }));
        }
        whole.ok_or_else(|| "expected a line in each block".into())
    }
}

/// Blocks at the left margin.
fn parse(text: &str) -> Result<Vec<Order>, String> {
    let lines = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let lines: Vec<_> = lines
        .map(|line| (line.len() - line.trim_start().len(), line.trim()))
        .collect();
    let mut rest = lines.as_slice();
    parse_parts(&mut rest, 0)
}

fn parse_parts(rest: &mut &[(usize, &str)], margin: usize) -> Result<Vec<Order>, String> {
    let mut parts = Vec::new();
    while let Some((&(indent, line), after)) = rest.split_first() {
        if indent < margin {
            break;
        }
        if indent > margin {
            return Err(format!(
                "expected an indentation of {margin}, found {indent}: `{line}`"
            ));
        }
        *rest = after;
        parts.push(match line {
            "in order" | "any order" => {
                let inner = rest.first().map_or(0, |&(indent, _)| indent);
                let parts = if inner > margin {
                    parse_parts(rest, inner)?
                } else {
                    Vec::new()
                };
                Order::Block {
                    in_order: line == "in order",
                    parts,
                }
            }
            _ => Order::Line(line.into()),
        });
    }
    Ok(parts)
}

#[cfg(test)]
mod tests;
