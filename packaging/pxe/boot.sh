#!/usr/bin/env bash
# Two virtual machines boot from the network, by DHCP, TFTP, iPXE and HTTP, and receive one image onto their
# disks; one sender sends the image once. Then the disks must begin with the image. Needs root; works in a
# network namespace of its own.
#
#   packaging/pxe/boot.sh [--binary FILE]
#
# --binary takes a static program that is built already. Without QEMU nothing is run, and the last line says
# so.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../help.sh"
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

MACHINES=2
IMAGE_MB=${IMAGE_MB:-32}
DISK_MB=$((IMAGE_MB + 8))
# Emulated processors, which share those of this machine, take no more.
RATE=${RATE:-10M}
PATIENCE_SECONDS=${PATIENCE_SECONDS:-400}
# Emulation of the processor: nested virtual machines seldom have KVM that works. ACCELERATOR=kvm on a machine of your own.
accelerator=${ACCELERATOR:-tcg}
GROUP=239.255.72.90:7290
SERVER=10.77.90.1
NAME=hwpxe$$

say() { echo "pxe: $*"; }

skip() {
    say "NOT RUN: $*"
    exit 0
}

[ "$(id -u)" = 0 ] || skip "needs root, for a network namespace"
for tool in qemu-system-x86_64 dnsmasq busybox cpio depmod apt-get dpkg-deb ip; do
    command -v "$tool" >/dev/null || skip "'$tool' is missing (packages qemu-system-x86, dnsmasq-base, busybox-static, cpio, kmod)"
done

folder=$(mktemp -d)
at_exit() {
    local code=$? pid
    for pid in $(jobs -p); do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    if [ $code != 0 ]; then for log in "$folder"/*.log; do say "${log##*/}:" && tail -n 30 "$log"; done; fi
    ip netns del "$NAME" 2>/dev/null || true
    rm -rf "$folder"
}
trap at_exit EXIT

# The kernel of Debian's cloud images, as an example: unpacked, not installed.
(
    cd "$folder"
    package=$(apt-cache depends linux-image-cloud-amd64 | awk '$1 == "Depends:" { print $2; exit }')
    apt-get download -qq "$package" || exit 1
    dpkg-deb -x ./*.deb kernel
) || skip "no kernel: linux-image-cloud-amd64 cannot be downloaded (apt-get update?)"
version=$(basename "$folder"/kernel/lib/modules/*)

mkdir "$folder/www"
cp "$folder/kernel/boot/vmlinuz-$version" "$folder/www/vmlinuz"
export XDG_STATE_HOME=$folder/state XDG_CONFIG_HOME=$folder/config
triple=$(rustc -vV | sed -n 's/^host: //p')
binary=$(realpath "${CARGO_TARGET_DIR:-target}")/$triple/release/headwater
if [ "${1:-}" = --binary ]; then
    binary=$(realpath "$2")
else
    RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static" cargo build --locked --release -p headwater-cli --target "$triple"
fi
"$binary" keygen >/dev/null
packaging/pxe/initramfs.sh --kernel "$version" --root "$folder/kernel" --trust "$folder/config/headwater/id_ed25519.pub" \
    --binary "$binary" "$folder/www"
cat >"$folder/www/boot.ipxe" <<SCRIPT
#!ipxe
kernel http://$SERVER/vmlinuz console=ttyS0 headwater.to=/dev/vda headwater.group=$GROUP
initrd http://$SERVER/initrd.img
boot
SCRIPT
head -c ${IMAGE_MB}M /dev/urandom >"$folder/image"

ip netns add "$NAME"
inside() { ip netns exec "$NAME" "$@"; }
inside ip link set dev lo up
inside ip link add br0 type bridge mcast_snooping 0
inside ip address add "$SERVER/24" dev br0
inside ip link set dev br0 up
inside dnsmasq --keep-in-foreground --conf-file=/dev/null --port=0 --interface=br0 --bind-interfaces --user=root \
    --dhcp-range=10.77.90.100,10.77.90.200,1h --dhcp-boot=boot.ipxe --enable-tftp --tftp-root="$folder/www" \
    --dhcp-leasefile="$folder/leases" --log-facility=- >"$folder/dnsmasq.log" 2>&1 &
inside python3 -m http.server --bind "$SERVER" --directory "$folder/www" 80 >"$folder/http.log" 2>&1 &

started=$SECONDS
machines=()
for number in $(seq "$MACHINES"); do
    truncate -s ${DISK_MB}M "$folder/disk$number"
    inside ip tuntap add dev "tap$number" mode tap
    inside ip link set dev "tap$number" master br0 up
    # -no-reboot: the machine ends when it would start again.
    inside qemu-system-x86_64 -accel "$accelerator" -m 768 -smp 1 -display none -no-reboot -serial "file:$folder/machine$number.log" \
        -netdev "tap,id=net,ifname=tap$number,script=no,downscript=no" \
        -device "virtio-net-pci,netdev=net,mac=52:54:00:77:90:0$number,bootindex=1" \
        -drive "file=$folder/disk$number,format=raw,if=virtio" >"$folder/qemu$number.log" 2>&1 &
    machines+=($!)
done
say "$MACHINES machines boot ($accelerator)"
inside "$binary" send --interface br0 --group "$GROUP" --rate "$RATE" --until "$MACHINES" --quiet "$folder/image" >"$folder/sender.log" 2>&1 &

for machine in "${machines[@]}"; do
    while kill -0 "$machine" 2>/dev/null; do
        ((SECONDS - started < PATIENCE_SECONDS)) || { say "FAILED: a machine has not ended after $PATIENCE_SECONDS s" && exit 1; }
        sleep 1
    done
done
wanted=$(sha256sum <"$folder/image")
for number in $(seq "$MACHINES"); do
    [ "$(head -c ${IMAGE_MB}M "$folder/disk$number" | sha256sum)" = "$wanted" ] || { say "FAILED: disk $number is not the image" && exit 1; }
done
say "ok: $MACHINES disks begin with the image of $IMAGE_MB MB, $((SECONDS - started)) s after power on ($accelerator, kernel $version)"
