#!/usr/bin/env bash
# Makes this checkout ready: what is missing of the system's packages, a private Python environment in .venv, and the engine.
# Safe to run again at any time: what is there is left alone. Usage: scripts/setup.sh [run|dev|docs]
set -euo pipefail
cd "$(dirname "$0")/.."
goal=${1:-run}
RUST_WANTED=1.91 # the first release that knows `target = "host-tuple"` (.cargo/config.toml)

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# apt_install PACKAGE...: where this user may, else say what to ask the administrator for.
apt_install() {
  local run=()
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
  "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null ||
    { say "apt-get could not install: $*"; return 1; }
}

# ---- system packages: movers that the studies and tests call
missing=()
for pair in rsync:rsync rclone:rclone ssh:openssh-client; do have "${pair%%:*}" || missing+=("${pair##*:}"); done
if [ "$goal" != run ]; then
  [ -x /usr/sbin/sshd ] || have sshd || missing+=(openssh-server)
  for pair in hyperfine:hyperfine parallel:parallel; do have "${pair%%:*}" || missing+=("${pair##*:}"); done
fi
[ ${#missing[@]} -eq 0 ] || apt_install "${missing[@]}" || say "going on without them: venturi doctor tells what that costs"

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

# ---- Venturi itself; done again only when something that it is made of has changed
stamp=.venv/.venturi-$goal
inputs=(pyproject.toml requirements.lock Cargo.toml Cargo.lock .cargo/config.toml scripts/setup.sh packaging)
if [ ! -e "$stamp" ] || [ ! -x .venv/bin/venturi-engine ] || [ ! -x .venv/bin/venturi ] ||
  [ -n "$(find "${inputs[@]}" crates -newer "$stamp" -type f -print -quit)" ]; then
  extra=
  [ "$goal" = run ] || extra="[$goal]"
  say "building the engine and installing Venturi into .venv (about a minute the first time)"
  started=$(mktemp .venv/.setup-XXXXXX)
  log=.venv/setup.log
  .venv/bin/python -m pip install --quiet --constraint requirements.lock --editable ".$extra" >"$log" 2>&1 ||
    { cat "$log" >&2; rm -f "$started"; fail "the installation failed; the text above is in $log"; }
  # The kernel ends the name of a script's interpreter at the first blank, and cuts it after 127 characters: let sh start it.
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
say "ready: .venv/bin/venturi"
