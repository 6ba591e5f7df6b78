#!/usr/bin/env bash
# Runs the suites of all three languages, from a clean checkout, with the real frameworks.
#
#   sdk/test.sh [--install] [python|node|go]...
#
# What the suites need is installed once, into $EVENKEEL_SDK_CACHE (default: target/sdk), and
# nothing into the checkout; with --install that is all. A language without its toolchain is skipped, and said so; with
# EVENKEEL_SDK_STRICT=1 that is a failure too. EVENKEEL_SDK_FUZZ is how many values Go's parser
# is fuzzed with (default 150000, about 10 s; 0 for the seeds only). Exit 1 when a suite fails.
set -uo pipefail

sdk="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cache="${EVENKEEL_SDK_CACHE:-$sdk/../target/sdk}"
mkdir -p "$cache" && cache="$(cd "$cache" && pwd)" || exit 2
failed=0
only_install=0

main() {
  if [ "${1:-}" = --install ]; then
    only_install=1
    shift
  fi
  local languages=("$@")
  [ $# -gt 0 ] || languages=(python node go)
  local language
  for language in "${languages[@]}"; do
    case "$language" in
      python | node | go) run_suite "$language" ;;
      *) echo "sdk/test.sh: $language: expected python, node or go" >&2; exit 2 ;;
    esac
  done
  return "$failed"
}

# missing_for_… says what is missing, or fails; test_… ends at the first command that fails.
run_suite() {
  local begin=$SECONDS reason status
  echo "== $1"
  if reason="$("missing_for_$1")"; then
    echo "SKIPPED $1: $reason"
    [ "${EVENKEEL_SDK_STRICT:-0}" = 0 ] || failed=1
    return
  fi
  # Not in a condition: there bash does not heed set -e.
  (set -e; "test_$1")
  status=$?
  if [ "$status" = 0 ]; then
    [ "$only_install" = 1 ] || echo "PASSED $1 in $((SECONDS - begin)) s"
  else
    echo "FAILED $1 after $((SECONDS - begin)) s"
    failed=1
  fi
}

missing_for_python() {
  ! command -v python3 >/dev/null && echo "no python3 in PATH" && return
  ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' &&
    echo "python3 is $(python3 -V 2>&1), at least 3.9 was expected" && return
  ! python3 -c 'import ensurepip, venv' 2>/dev/null &&
    echo "python3 has no venv (on Debian: python3-venv)"
}

test_python() {
  cd "$sdk/python"
  export PYTHONDONTWRITEBYTECODE=1
  local environment
  environment="$cache/python-$(fingerprint "$(python3 -VV)" pyproject.toml)"
  installed "$environment" install_python
  [ "$only_install" = 0 ] || return 0
  "$environment/bin/python" -m pytest -q
  "$environment/bin/python" -m mypy --cache-dir "$environment/mypy"
}

install_python() {
  python3 -m venv "$1"
  # Only what the tests need: the package itself is tested where it lies.
  "$1/bin/python" - <<'END' >"$1/requirements.txt"
import sys
try:
    import tomllib
except ImportError:
    from pip._vendor import tomli as tomllib
with open("pyproject.toml", "rb") as file:
    print("\n".join(tomllib.load(file)["project"]["optional-dependencies"]["test"]))
END
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check -r "$1/requirements.txt"
}

missing_for_node() {
  ! command -v node >/dev/null && echo "no node in PATH" && return
  ! command -v npm >/dev/null && echo "no npm in PATH" && return
  ! node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)' &&
    echo "node is $(node --version), at least 18.3 was expected"
}

# Node looks for packages beside the importing file, so the files go to the packages.
test_node() {
  cd "$sdk/node"
  local copy
  copy="$cache/node-$(fingerprint "$(node --version)" package.json)"
  installed "$copy" install_node
  [ "$only_install" = 0 ] || return 0
  rm -rf "$copy/conformance" "$copy/node/test"
  cp -R "$sdk/conformance" "$copy/"
  cp -R package.json brownout.* test "$copy/node/"
  cd "$copy/node"
  # Only the sums, unless something failed.
  npm test --silent >"$copy/log" 2>&1 || { cat "$copy/log"; return 1; }
  grep -E '^(# |ℹ )(tests|pass|fail|skipped) ' "$copy/log"
  npm run --silent types
}

install_node() {
  mkdir -p "$1/node"
  cp package.json "$1/node/"
  (cd "$1/node" && npm install --silent --no-package-lock --no-audit --no-fund)
}

missing_for_go() {
  ! command -v go >/dev/null && echo "no go in PATH"
}

test_go() {
  [ "$only_install" = 0 ] || return 0 # its modules are part of the tests' build
  cd "$sdk/go"
  export GOFLAGS=-mod=readonly GOWORK=off
  local unformatted race=()
  unformatted="$(gofmt -l .)"
  [ -z "$unformatted" ] || { echo "gofmt would change: $unformatted"; return 1; }
  go vet ./...
  if [ "$(go env CGO_ENABLED)" = 1 ] && command -v "$(go env CC)" >/dev/null; then
    race=(-race)
  else
    echo "without the race detector: it needs cgo and a C compiler"
  fi
  # Not from the cache: it does not see that the table beside the module has changed.
  go test -count=1 ${race[@]+"${race[@]}"} ./...
  # A number, not a time, whose end may count as a failure up to Go 1.26 (go.dev/issue/75804).
  local values="${EVENKEEL_SDK_FUZZ:-150000}"
  [ "$values" = 0 ] ||
    go test -run '^$' -fuzz FuzzRead -fuzztime "${values}x" -fuzzminimizetime 1x ./...
}

# The toolchain's version and the file that names what is needed, as a name for a directory.
fingerprint() {
  { echo "$1"; cat "$2"; } | cksum | cut -d ' ' -f 1
}

# Installs into a directory unless that was done, whole, before.
installed() {
  [ -e "$1/.complete" ] && return
  echo "installing what the tests need into $1"
  rm -rf "$1"
  mkdir -p "$1"
  "$2" "$1"
  touch "$1/.complete"
}

main "$@"
