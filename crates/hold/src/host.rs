//! One host: a process that does nothing but be in a network and a UTS namespace of its own.

use std::fs::File;
use std::io::{Read, Write};
use std::mem;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{ForkResult, Pid, fork, sethostname};

use crate::error::Error;
use crate::signals;

/// Makes the host and waits until it is there.
///
/// To be called where there is no other thread.
pub(crate) fn start(host: &str, host_name: &str, user_namespace: bool) -> Result<Pid, Error> {
    let refused = |what: String, errno| Error::Refused {
        what,
        errno,
        user_namespace,
    };
    let making = |errno| refused(format!("start a process for the host `{host}`"), errno);
    let (read_end, write_end) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(making)?;
    // SAFETY: no other thread exists in PID 1 (see above), so the child may use the whole of the library.
    match unsafe { fork() }.map_err(making)? {
        ForkResult::Child => be(host_name, File::from(write_end)),
        ForkResult::Parent { child } => {
            drop(write_end);
            let mut told = Vec::new();
            // A pipe of our own child: what cannot be read is missing, and told below.
            let _ = File::from(read_end).read_to_end(&mut told);
            match told.as_slice() {
                [0] => Ok(child),
                [step, number @ ..] => Err(refused(
                    format!("{} for the host `{host}`", Step::named(*step)),
                    Errno::from_raw(<[u8; 4]>::try_from(number).map_or(0, i32::from_ne_bytes)),
                )),
                [] => Err(Error::Ended {
                    who: format!("the process of the host `{host}`"),
                    how: "it ended before it was ready".into(),
                }),
            }
        }
    }
}

/// What a host does at first. The number goes over the pipe; 0 says that all is done.
#[derive(Debug, Clone, Copy)]
enum Step {
    Unshare = 1,
    Name = 2,
    Loopback = 3,
}

impl Step {
    fn named(number: u8) -> &'static str {
        match number {
            1 => "make a network and a UTS namespace",
            2 => "set the host name",
            _ => "bring up the device `lo`",
        }
    }
}

/// The life of a host.
fn be(host_name: &str, mut report: File) -> ! {
    signals::obey_all();
    let told = match settle(host_name) {
        Ok(()) => vec![0],
        Err((step, errno)) => [&[step as u8][..], &(errno as i32).to_ne_bytes()].concat(),
    };
    let _ = report.write_all(&told); // who does not read it is gone, and takes us along
    drop(report);
    // Nobody's pipe stays open because of a host, standard error included.
    close_all();
    if told != [0] {
        // SAFETY: ends the process without the exit handlers, which belong to PID 1.
        unsafe { libc::_exit(1) };
    }
    loop {
        // SAFETY: waits for a signal that ends the process; takes nothing and touches no memory.
        unsafe { libc::pause() };
    }
}

fn settle(host_name: &str) -> Result<(), (Step, Errno)> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS)
        .map_err(|errno| (Step::Unshare, errno))?;
    sethostname(host_name).map_err(|errno| (Step::Name, errno))?;
    raise_loopback().map_err(|errno| (Step::Loopback, errno))
}

/// Sets the flag `IFF_UP` of `lo` (netdevice(7)).
fn raise_loopback() -> Result<(), Errno> {
    // SAFETY: all zeros is a valid `ifreq`: numbers and characters.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    // SAFETY: the descriptor is closed below; the requests read and write `request`, which lives on.
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
    /// No process here has opened more.
    const MAX_DESCRIPTOR: u32 = 1024;
    // SAFETY: nothing in this process uses a descriptor again; closing what is not open only fails. Kernels before 5.9 have no
    // `close_range`.
    unsafe {
        if libc::syscall(libc::SYS_close_range, 0_u32, u32::MAX, 0_u32) != 0 {
            for fd in 0..MAX_DESCRIPTOR {
                libc::close(fd.cast_signed());
            }
        }
    }
}
