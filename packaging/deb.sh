#!/usr/bin/env bash
# Builds a Debian package of the command: program, man pages, completions, units. The same sources and SOURCE_DATE_EPOCH give
# the same bytes. Needs dpkg-dev.
#
#   packaging/deb.sh [--binary FILE] [FOLDER]
#
# The package goes to FOLDER (default: target/packages). --binary takes a program that is built already, MAINTAINER names
# who answers for the package.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/help.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

. packaging/common.sh
if [ -z "$binary" ]; then
    cargo build --locked --release -p headwater-cli
    binary=$(realpath "${CARGO_TARGET_DIR:-target}/release/headwater")
fi
architecture=$(dpkg --print-architecture)
maintainer=${MAINTAINER:-Headwater packagers <packages@example.org>}
umask 022

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
document=$root/usr/share/doc/headwater
install -D -m 755 "$binary" "$root/usr/bin/headwater"
strip --strip-unneeded "$root/usr/bin/headwater"
install -D -m 644 -t "$root/lib/systemd/system" packaging/systemd/*.service

"$binary" generate "$work/share" >/dev/null
install -D -m 644 "$work/share/headwater.bash" "$root/usr/share/bash-completion/completions/headwater"
install -D -m 644 "$work/share/_headwater" "$root/usr/share/zsh/vendor-completions/_headwater"
install -D -m 644 "$work/share/headwater.fish" "$root/usr/share/fish/vendor_completions.d/headwater.fish"
install -D -m 644 -t "$root/usr/share/man/man1" "$work"/share/*.1
gzip -9n "$root"/usr/share/man/man1/*.1

install -d "$document"
date=$(date -u -R -d "@$SOURCE_DATE_EPOCH")
cat >"$document/changelog" <<EOT
headwater ($version) unstable; urgency=medium

  * Built from commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown).

 -- $maintainer  $date
EOT
gzip -9n "$document/changelog"
cat >"$document/copyright" <<EOT
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: the authors of Headwater
License: MIT or Apache-2.0

License: MIT
$(sed -e 's/^$/./' -e 's/^/ /' LICENSE-MIT)

License: Apache-2.0
 On Debian systems the full text is in /usr/share/common-licenses/Apache-2.0.
EOT

# What the program links, by dpkg-shlibdeps, which wants a source package around it.
mkdir -p "$work/source/debian"
printf 'Source: headwater\n\nPackage: headwater\nArchitecture: any\n' >"$work/source/debian/control"
depends=$(cd "$work/source" && dpkg-shlibdeps -O --ignore-missing-info "$root/usr/bin/headwater" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')

install -d "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<EOT
Package: headwater
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -k -s --exclude=DEBIAN "$root" | cut -f1)
${depends:+Depends: $depends
}Section: net
Priority: optional
Description: file and stream distribution by multicast
 One sender, any number of receivers, each at the rate that its own path can
 fairly carry beside TCP. Files arrive whole and verified: an erasure code
 replaces lost packets, and every packet is signed.
 .
 Networks without multicast are reached by relays.
EOT
(cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

mkdir -p "$out"
package=$out/headwater_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
echo "$package"
