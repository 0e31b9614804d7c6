#!/usr/bin/env bash
# Makes an initramfs that receives an image onto a disk: the static command, busybox, the kernel's drivers of
# networks and disks, and `init` of this folder. The same inputs and SOURCE_DATE_EPOCH give the same bytes.
#
#   packaging/pxe/initramfs.sh --kernel VERSION [--root FOLDER] [--trust FILE] [--binary FILE] [FOLDER]
#
# --kernel names the folder of /lib/modules, below --root if given. --trust puts the sender's public key into
# the initramfs; without a key, any sender on the group is believed. --binary takes a static program that is
# built already. initrd.img goes to FOLDER (default: target/packages). Needs busybox-static, cpio and kmod of
# Debian.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../help.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Drivers, by folder below kernel/drivers or by name; missing ones are left out.
DRIVERS=(net/ethernet net/phy net/mdio net/virtio_net.ko net/vmxnet3 net/hyperv nvme ata block/virtio_blk.ko scsi virtio hv usb/host usb/storage
    message/fusion)

die() {
    echo "initramfs: $*" >&2
    exit 1
}

binary='' kernel='' root='' trust=''
while [ $# -gt 0 ]; do
    case $1 in
    --binary) binary=$(realpath "$2") ;;
    --kernel) kernel=$2 ;;
    --root) root=$(realpath "$2") ;;
    --trust) trust=$(realpath "$2") ;;
    -*) die "unknown option '$1'" ;;
    *) break ;;
    esac
    shift 2
done
[ -n "$kernel" ] || die "name the kernel: --kernel VERSION, a folder of ${root:-}/lib/modules"
modules=$root/lib/modules/$kernel
[ -d "$modules" ] || die "there is no folder '$modules'"
busybox=$(command -v busybox) || die "busybox is missing: install the package busybox-static"
for tool in cpio depmod gzip; do command -v $tool >/dev/null || die "'$tool' is missing: install the packages cpio, kmod and gzip"; done
# is_dynamic PROGRAM: of a static program, ldd names no library.
is_dynamic() { ldd "$1" 2>/dev/null | grep -q "=>"; }
if is_dynamic "$busybox"; then die "'$busybox' is not static: install the package busybox-static"; fi

set -- ${binary:+--binary "$binary"} "$@"
. packaging/common.sh
if [ -z "$binary" ]; then
    triple=$(rustc -vV | sed -n 's/^host: //p')
    RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static" cargo build --locked --release -p headwater-cli --target "$triple"
    binary=$(realpath "${CARGO_TARGET_DIR:-target}/$triple/release/headwater")
fi
if is_dynamic "$binary"; then die "'$binary' is not static: build it as packaging/oci.sh does"; fi

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage"/{bin,etc,lib/modules}
install -m 755 "$busybox" "$stage/bin/busybox"
install -m 755 "$binary" "$stage/bin/headwater"
install -m 755 packaging/pxe/init "$stage/init"
install -m 755 packaging/pxe/udhcpc.script "$stage/etc/udhcpc.script"
if [ -n "$trust" ]; then install -m 644 "$trust" "$stage/etc/headwater.trust"; fi

target=$stage/lib/modules/$kernel
mkdir -p "$target"
cp "$modules"/modules.{order,builtin,builtin.modinfo} "$target/"
# The drivers, and all modules that they need.
[ -e "$modules/modules.dep" ] || depmod -b "${root:-/}" "$kernel"
for driver in "${DRIVERS[@]}"; do find "$modules/kernel/drivers/$driver" -name '*.ko*' 2>/dev/null || true; done |
    sed "s#^$modules/##" | sort -u >"$stage/wanted"
find "$modules/kernel/net/packet" -name '*.ko*' 2>/dev/null | sed "s#^$modules/##" >>"$stage/wanted" || true
awk -F '[: ]+' 'NR == FNR { wanted[$1]; next } $1 in wanted { for (i = 1; i <= NF; i++) if ($i != "") print $i }' \
    "$stage/wanted" "$modules/modules.dep" | sort -u | while read -r module; do
    install -D -m 644 "$modules/$module" "$target/$module"
done
rm "$stage/wanted"
depmod -b "$stage" "$kernel"
find "$target" -maxdepth 1 -name '*.bin' -delete

mkdir -p "$out"
find "$stage" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
(cd "$stage" && find . -print0 | LC_ALL=C sort -z | cpio --null --create --format=newc --owner=0:0 --reproducible --quiet) |
    gzip -9n >"$out/initrd.img"
echo "$out/initrd.img: $(du -h "$out/initrd.img" | cut -f1), drivers of $kernel"
