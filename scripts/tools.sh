#!/bin/sh
# Sees to it that the tests find what they need besides Go: a C compiler for the
# race detector, and npm for the example in JavaScript. On Debian as root it is
# installed; elsewhere it is asked for. (PostgreSQL and a browser are seen to in the
# same way when a test first needs them, by internal/pgserver and test/browser.)
set -eu

missing=
cc=$(go env CC)
if ! printf '#include <stdlib.h>\n' | $cc -E - >/dev/null 2>&1; then
	missing="gcc libc6-dev"
fi
if ! node --version >/dev/null 2>&1 || ! npm --version >/dev/null 2>&1; then
	missing="$missing nodejs npm"
fi
if [ -z "$missing" ]; then
	exit 0
fi
if [ "$(id -u)" != 0 ] || [ ! -e /etc/debian_version ]; then
	echo "missing: a C compiler with headers ($cc), for the race detector, or npm (Debian: apt-get install $missing)" >&2
	exit 1
fi
echo "not all is here that the tests need: apt-get install $missing" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get -qq -o DPkg::Lock::Timeout=300 update >&2 || true # what is known already may do
apt-get -qq -y -o DPkg::Lock::Timeout=300 --no-install-recommends install $missing >/dev/null
