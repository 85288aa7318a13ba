#!/usr/bin/env bash
# Prepares this checkout: installs missing system packages, a private Python environment in .venv, and the engine.
# Can be repeated at any time, because it keeps existing parts. Usage: scripts/setup.sh [run|dev|docs]
set -euo pipefail
cd "$(dirname "$0")/.."
goal=${1:-run}
RUST_WANTED=1.91 # the first release that knows `target = "host-tuple"` (.cargo/config.toml)

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# Server programs are not on the PATH of every user.
sbin=/usr/local/sbin:/usr/sbin:/sbin
have_program() { PATH=$PATH:$sbin command -v "$1" >/dev/null 2>&1; }

# apt_install PACKAGE...: installs packages if this user has permission, otherwise lists them for the administrator.
apt_install() {
  run=()
  if ! have apt-get; then
    say "not Debian: please install the equivalents of: $*"
    return 1
  fi
  if [ "$(id -u)" != 0 ]; then
    have sudo && sudo -n true 2>/dev/null || { say "no root here: please have these packages installed: $*"; return 1; }
    run=(sudo -n)
  fi
  say "installing $*"
  if [ -z "${apt_updated:-}" ]; then
    "${run[@]}" apt-get update -qq >/dev/null 2>&1 || say "apt-get update failed; trying with the old list"
    apt_updated=1
  fi
  local package before candidates known=() unknown=()
  # Install the other packages if this distribution lacks one of them.
  candidates=$(apt-cache policy "$@" 2>/dev/null | awk '/^[^ ]/ { name = $1 } /Candidate: [^(]/ { printf "%s", name }')
  for package in "$@"; do
    case :$candidates in *":$package:"*) known+=("$package") ;; *) unknown+=("$package") ;; esac
  done
  [ ${#unknown[@]} -eq 0 ] || say "not in this distribution: ${unknown[*]}"
  [ ${#known[@]} -gt 0 ] || return 1
  before=$(installed)
  keep_daemons_down
  "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "${known[@]}" \
    >/dev/null || { say "apt-get could not install: ${known[*]}"; unknown=("$@"); }
  let_daemons_up
  disable_daemons "$before"
  [ ${#unknown[@]} -eq 0 ]
}
installed() { dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 2>/dev/null | sed -n 's/^ii *//p' | sort -u; }

# Server packages start their servers at installation and at each boot, but only their programs are needed here. Debian runs
# policy-rc.d before it starts a service (exit code 101: do not start). The script installs one during apt-get, unless the
# administrator has one. Afterwards, it disables and stops only the services of the new packages.
policy=/usr/sbin/policy-rc.d
our_policy=
keep_daemons_down() {
  [ ! -e $policy ] || return 0
  printf '#!/bin/sh\n# Of scripts/setup.sh of Venturi, for the time of an installation.\nexit 101\n' | "${run[@]}" tee $policy >/dev/null
  "${run[@]}" chmod 755 $policy
  our_policy=$policy
}
let_daemons_up() {
  [ -z "$our_policy" ] || "${run[@]}" rm -f "$our_policy"
  our_policy=
}
trap let_daemons_up EXIT
disable_daemons() {
  local new files unit
  new=$(comm -13 <(printf '%s\n' "$1") <(installed))
  [ -n "$new" ] || return 0
  # shellcheck disable=SC2086 # package names, one per word
  files=$(dpkg-query -L $new 2>/dev/null | sed -nE 's#^(/usr)?/lib/systemd/system/([^/@]+\.(service|socket))$#\2#p; s#^/etc/init\.d/([^/]+)$#\1#p' | sort -u)
  for unit in $files; do
    case $unit in
    *.*) ! have systemctl || "${run[@]}" systemctl disable --quiet ${systemd:+--now} "$unit" >/dev/null 2>&1 || true ;;
    *) ! have_program update-rc.d || "${run[@]}" env PATH="$PATH:$sbin" update-rc.d "$unit" disable >/dev/null 2>&1 || true ;;
    esac
  done
}
systemd=
[ ! -d /run/systemd/system ] || systemd=yes

# ---- system packages: programs that the studies and tests call, as PROGRAM:PACKAGE, or :PACKAGE for plug-ins
wanted=(
  rsync:rsync rclone:rclone ssh:openssh-client
  # the lab: hosts, network, storage
  ip:iproute2 ethtool:ethtool nsenter:util-linux mount:mount mkfs.ext4:e2fsprogs sysctl:procps nft:nftables openssl:openssl
  # studies with GridFTP
  globus-gridftp-server:globus-gridftp-server-progs globus-url-copy:globus-gass-copy-progs grid-proxy-init:globus-proxy-utils
  iperf3:iperf3
  # studies of document 004: disks and networks with two tools each, files over wide-area routes
  nuttcp:nuttcp fio:fio bonnie++:bonnie++ xrootd:xrootd-server xrdcp:xrootd-client
)
if [ "$goal" != run ]; then
  wanted+=(
    sshd:openssh-server ssh-keygen:openssh-client hyperfine:hyperfine parallel:parallel curl:curl wget:wget tcpdump:tcpdump
    strace:strace ping:iputils-ping
    # venturi copy: a file system with reflinks, and other programs of its bench
    mkfs.xfs:xfsprogs fpsync:fpart lftp:lftp
    :xrootd-server-plugins :xrootd-client-plugins :xrootd-client-http-plugins
    squid:squid-openssl nginx:nginx-light :libnginx-mod-http-dav-ext davix-get:davix apache2:apache2-bin litmus:litmus
    gfal-copy:gfal2-util-scripts :python3-gfal2-util :gfal2-plugin-file :gfal2-plugin-gridftp :gfal2-plugin-http
    :gfal2-plugin-xrootd :gfal2-plugin-sftp :gfal2-plugin-srm
    krb5kdc:krb5-kdc kadmin.local:krb5-admin-server kinit:krb5-user
    mfsmaster:moosefs-master mfschunkserver:moosefs-chunkserver mfsmount:moosefs-client mfscli:moosefs-cli
    # jobs in a batch system
    slurmctld:slurmctld slurmd:slurmd sbatch:slurm-client munged:munge
  )
fi
missing=() plugins=()
for pair in "${wanted[@]}"; do
  program=${pair%%:*} package=${pair##*:}
  if [ -n "$program" ]; then
    have_program "$program" || missing+=("$package")
  elif have dpkg-query; then
    plugins+=("$package")
  fi
done
if [ ${#plugins[@]} -gt 0 ]; then # one query for all, because each takes 10 ms
  # shellcheck disable=SC2207 # package names, one per word
  missing+=($(comm -23 <(printf '%s\n' "${plugins[@]}" | sort) <(installed)))
fi

# ---- a compiler for the engine
rust_version() { cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9.]*\).*/\1/p'; }
for folder in "$HOME/.cargo/bin" /usr/lib/rust-web/bin; do have cargo || [ ! -x "$folder/cargo" ] || PATH=$folder:$PATH; done
if ! have cargo || ! at_least $RUST_WANTED "$(rust_version)"; then
  apt_install cargo-web rustc-web gcc libc6-dev || apt_install cargo rustc gcc libc6-dev || true
  [ ! -x /usr/lib/rust-web/bin/cargo ] || PATH=/usr/lib/rust-web/bin:$PATH
fi
have cargo || fail "expected cargo $RUST_WANTED or newer to build the engine, found none. Install Rust (for example with rustup) and run this again"
at_least $RUST_WANTED "$(rust_version)" || fail "expected cargo $RUST_WANTED or newer, found $(rust_version). Update it (rustup update) and run this again"
have cc || apt_install gcc libc6-dev || fail "expected a C compiler to link the engine, found none. Install gcc and run this again"

# ---- a private Python environment
python=
for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
  if have "$candidate" && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$candidate; break; fi
done
if [ -z "$python" ]; then
  apt_install python3 python3-venv || true
  have python3 && python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "expected Python 3.11 or newer, found none. Install it and run this again"
  python=python3
fi
if [ ! -x .venv/bin/python ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  say "making .venv with $($python --version)"
  rm -rf .venv
  "$python" -m venv .venv 2>/dev/null || { apt_install python3-venv && "$python" -m venv .venv; } ||
    fail "$python cannot make a virtual environment. Install its venv module (Debian: python3-venv) and run this again"
fi

# ---- missing packages, in parallel with the build; if the script is stopped, it waits for apt-get
programs=
if [ ${#missing[@]} -gt 0 ]; then
  (
    trap let_daemons_up EXIT
    apt_install "${missing[@]}" || say "going on without them: venturi doctor tells what that costs"
  ) &
  programs=$!
fi
settle() {
  local installing=$programs
  programs=
  if [ -n "$installing" ]; then
    ! kill -0 "$installing" 2>/dev/null || say "waiting for apt-get to end"
    wait "$installing" || say "apt-get was ended before it was done: run this again"
  fi
  let_daemons_up
}
trap settle EXIT

# ---- Venturi itself; only repeated if its inputs have changed
stamp=.venv/.venturi-$goal
inputs=(pyproject.toml requirements.lock Cargo.toml Cargo.lock .cargo/config.toml scripts/setup.sh packaging)
if [ ! -e "$stamp" ] || [ ! -x .venv/bin/venturi-engine ] || [ ! -x .venv/bin/venturi ] ||
  [ -n "$(find "${inputs[@]}" crates -newer "$stamp" -type f -print -quit)" ]; then
  extra=
  [ "$goal" = run ] || extra="[$goal,root,dask]"
  say "building the engine and installing Venturi into .venv (4 to 6 minutes on two processors the first time)"
  started=$(mktemp .venv/.setup-XXXXXX)
  log=.venv/setup.log
  .venv/bin/python -m pip install --quiet --constraint requirements.lock --editable ".$extra" >"$log" 2>&1 ||
    { cat "$log" >&2; rm -f "$started"; fail "the installation failed; the text above is in $log"; }
  # The kernel ends the interpreter path of a script at the first blank, and truncates it to 127 characters, so sh starts it.
  interpreter=$(head -n 1 .venv/bin/venturi)
  if [[ $interpreter == *[[:blank:]]* || ${#interpreter} -gt 127 ]]; then
    {
      printf '%s\n' '#!/bin/sh' "'''exec' \"$PWD/.venv/bin/python\" \"\$0\" \"\$@\"" "' '''"
      tail -n +2 .venv/bin/venturi
    } >.venv/venturi.new
    cat .venv/venturi.new >.venv/bin/venturi # keeps the permissions
    rm .venv/venturi.new
  fi
  mv "$started" "$stamp"
fi
settle
say "ready: .venv/bin/venturi"
