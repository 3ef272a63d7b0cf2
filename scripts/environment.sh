# shellcheck shell=bash
# Sourced by scripts/run, scripts/test, scripts/docs and .ci/run: the Python environment of this checkout.
#
#   PYTHON=          the interpreter for a new environment (default: the newest working one of python3.14,
#                    python3.13, python3.12, python3.11 on PATH)
#   SIMULATOR_VENV=  the folder of the environment (default: .venv in the checkout)
#
# All messages go to stderr, because stdout belongs to the program. Only the last step of an installation
# writes the stamp, so that an interrupted installation is repeated.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=${SIMULATOR_VENV:-$root/.venv}
[[ $venv == /* ]] || venv=$PWD/$venv
stamp=$venv/simulator-setup

say() { printf '%s\n' "$*" >&2; }

fail() { # fail CODE MESSAGE
  say "$2"
  exit "$1"
}

# Whether the interpreter runs, has a supported version and can create environments. Version managers put commands on
# PATH that do not run.
works() {
  "$1" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' \
    >/dev/null 2>&1
}

find_python() {
  local version candidate
  if [[ -n ${PYTHON:-} ]]; then
    works "$PYTHON" || fail 2 "PYTHON=$PYTHON: no working Python 3.11 to 3.14 with the venv module"
    command -v -- "$PYTHON"
    return
  fi
  for version in 3.14 3.13 3.12 3.11; do
    while read -r candidate; do
      if works "$candidate"; then
        printf '%s\n' "$candidate"
        return
      fi
    done < <(type -aP "python$version")
  done
  fail 2 "no working python3.14, python3.13, python3.12 or python3.11 with venv on PATH; load one (module load python/3.12, \
apt install python3-venv) or name one with PYTHON=/path/to/python3.12"
}

# The value of one line of the stamp: checkout, sum (of pyproject.toml), asked (PYTHON=), extras.
stamped() {
  [[ -f $stamp ]] && sed -n "s/^$1=//p" "$stamp"
}

wanted_sum() { cksum <"$root/pyproject.toml"; }

detect_extra() {
  local version
  if version=$(nvidia-smi 2>/dev/null); then
    if [[ $version =~ CUDA\ Version:\ *([0-9]+) ]] && ((BASH_REMATCH[1] < 13)); then
      echo cuda12
    else
      echo cuda13
    fi
  elif rocm-smi >/dev/null 2>&1 || amd-smi version >/dev/null 2>&1; then
    echo rocm
  else
    echo cpu
  fi
}

has_word() { [[ " $1 " == *" $2 "* ]]; } # has_word "LIST OF WORDS" WORD

is_ready() { # is_ready EXTRA...
  local extra extras
  [[ -x $venv/bin/python && -x $venv/bin/simulator ]] || return 1
  [[ $(stamped checkout) == "$root" && $(stamped sum) == "$(wanted_sum)" ]] || return 1
  [[ -z ${PYTHON:-} || $(stamped asked) == "$PYTHON" ]] || return 1
  extras=$(stamped extras)
  for extra in "$@"; do
    has_word "$extras" "$extra" || return 1
  done
}

# The accelerator is chosen when the environment is created, and then kept, because a login node may see no GPU
# although the job has one.
platform_of() { # platform_of "LIST OF WORDS"
  local word
  for word in cpu cuda12 cuda13 rocm; do
    if has_word "$1" "$word"; then
      echo "$word"
    fi
  done
}

make_environment() {
  local python had
  had=$(platform_of "$(stamped extras || true)")
  if [[ -d $venv && -n $(ls -A "$venv") && ! -f $venv/pyvenv.cfg ]]; then
    fail 2 "$venv: not empty, and not a virtual environment; name another place with SIMULATOR_VENV="
  fi
  if [[ -x $venv/bin/python && (-z ${PYTHON:-} || $(stamped asked) == "$PYTHON") ]] &&
    works "$venv/bin/python" && [[ -z $had || $had == cpu || $had == "$1" ]]; then
    return
  fi
  python=$(find_python) || exit
  say "making $venv with $python"
  "$python" -m venv --clear "$venv" || fail 1 "$python could not make $venv"
}

install() { # install EXTRA...
  local platform extras pip_extras
  platform=$(platform_of "$*")
  extras="$* $(stamped extras || true)"
  if [[ -z $platform ]]; then
    platform=$(platform_of "$extras")
    platform=${platform:-$(detect_extra)}
  fi
  make_environment "$platform"
  extras=$platform$(for extra in test dev docs; do has_word "$extras" "$extra" && printf ' %s' "$extra"; done; true)
  pip_extras=${extras#cpu}
  pip_extras=${pip_extras# }
  say "installing simulator [$extras] into $venv (the first time takes minutes)"
  [[ ! -f $stamp ]] || sed -i 's/^sum=.*/sum=/' "$stamp"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --editable "$root${pip_extras:+[${pip_extras// /,}]}" >&2 ||
    fail 1 "the installation failed; see the reason above"
  # Compiles the native kernels of the transforms. Without a C++ compiler the command prints a line, and runs use XLA.
  [[ ! -d $root/simulator/spectral/native ]] || "$venv/bin/python" -P -m simulator.spectral.native >&2 || true
  printf 'checkout=%s\nsum=%s\nasked=%s\nextras=%s\n' "$root" "$(wanted_sum)" "${PYTHON:-}" "$extras" >"$stamp"
}

# Install the extras (cpu, cuda12, cuda13, rocm, test, dev, docs) unless the environment has them already.
ensure_environment() {
  is_ready "$@" && return
  local lock
  mkdir -p -- "$(dirname -- "$venv")" || fail 1 "$(dirname -- "$venv") cannot be made"
  # The kernel releases this lock when its holder ends for any reason.
  exec {lock}>"$venv.lock" || fail 1 "$venv.lock cannot be written"
  if ! flock --nonblock "$lock"; then
    say "another set-up of $venv is running; waiting for it"
    flock "$lock"
  fi
  is_ready "$@" || install "$@"
  exec {lock}>&-
}
