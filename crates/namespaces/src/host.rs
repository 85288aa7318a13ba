//! One host: an idle process in its own network and UTS namespaces.

use std::fs::File;
use std::io::{Read, Write};
use std::mem;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{ForkResult, Pid, fork, sethostname};

use crate::error::SandboxError;
use crate::signals;

/// Starts the host process and waits until it is ready.
///
/// Call it while the process has only one thread.
pub(crate) fn start(
    host: &str,
    host_name: &str,
    user_namespace: bool,
) -> Result<Pid, SandboxError> {
    let kernel_error = |action: String, errno| SandboxError::Kernel {
        action,
        errno,
        user_namespace,
    };
    let making = |errno| kernel_error(format!("start a process for the host `{host}`"), errno);
    let (reader, writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(making)?;
    // SAFETY: no other thread exists in PID 1 (see above), so the child can use the whole library.
    match unsafe { fork() }.map_err(making)? {
        ForkResult::Child => run_host(host_name, File::from(writer)),
        ForkResult::Parent { child } => {
            drop(writer);
            let mut status = Vec::new();
            // Pipe from our child: missing bytes are handled below.
            let _ = File::from(reader).read_to_end(&mut status);
            match status.as_slice() {
                [0] => Ok(child),
                [step, number @ ..] => Err(kernel_error(
                    format!("{} for the host `{host}`", HostSetupStep::named(*step)),
                    Errno::from_raw(<[u8; 4]>::try_from(number).map_or(0, i32::from_ne_bytes)),
                )),
                [] => Err(SandboxError::Ended {
                    process: format!("the process of the host `{host}`"),
                    exit: "it exited before it was ready".into(),
                }),
            }
        }
    }
}

/// Setup step of a host. Its number is sent over the pipe; 0 means success.
#[derive(Debug, Clone, Copy)]
enum HostSetupStep {
    Unshare = 1,
    Name = 2,
    Loopback = 3,
}

impl HostSetupStep {
    fn named(number: u8) -> &'static str {
        match number {
            1 => "make a network and a UTS namespace",
            2 => "set the host name",
            _ => "bring up the device `lo`",
        }
    }
}

/// Runs the host process.
fn run_host(host_name: &str, mut report: File) -> ! {
    signals::obey_all();
    let status = match set_up(host_name) {
        Ok(()) => vec![0],
        Err((step, errno)) => [&[step as u8][..], &(errno as i32).to_ne_bytes()].concat(),
    };
    let _ = report.write_all(&status); // a reader that has exited ends this process, too
    drop(report);
    // Close all descriptors, including standard error, so that a host keeps no pipe open.
    close_all();
    if status != [0] {
        // SAFETY: ends the process without the exit handlers, which belong to PID 1.
        unsafe { libc::_exit(1) };
    }
    loop {
        // SAFETY: waits for a signal that ends the process, without arguments and without access to
        // memory.
        unsafe { libc::pause() };
    }
}

fn set_up(host_name: &str) -> Result<(), (HostSetupStep, Errno)> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS)
        .map_err(|errno| (HostSetupStep::Unshare, errno))?;
    sethostname(host_name).map_err(|errno| (HostSetupStep::Name, errno))?;
    raise_loopback().map_err(|errno| (HostSetupStep::Loopback, errno))
}

/// Sets the flag `IFF_UP` of `lo` (netdevice(7)).
fn raise_loopback() -> Result<(), Errno> {
    // SAFETY: all zeros is a valid `ifreq`: numbers and characters.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    // SAFETY: the descriptor is closed below; the requests read and write `request`, which stays
    // valid.
    unsafe {
        let socket = Errno::result(libc::socket(
            libc::AF_INET,
            libc::SOCK_DGRAM | libc::SOCK_CLOEXEC,
            0,
        ))?;
        let mut result = Errno::result(libc::ioctl(socket, libc::SIOCGIFFLAGS, &raw mut request));
        if result.is_ok() {
            request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short;
            result = Errno::result(libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw mut request));
        }
        libc::close(socket);
        result.map(drop)
    }
}

fn close_all() {
    /// Above the number of descriptors that any process here opens.
    const MAX_DESCRIPTOR: u32 = 1024;
    // SAFETY: this process uses no descriptor again; closing a closed descriptor only fails.
    // Kernels before 5.9 have no `close_range`.
    unsafe {
        if libc::syscall(libc::SYS_close_range, 0_u32, u32::MAX, 0_u32) != 0 {
            for fd in 0..MAX_DESCRIPTOR {
                libc::close(fd.cast_signed());
            }
        }
    }
}
