#!/usr/bin/env bash
# Stock tshark must read every type of PGM packet and every option that Headwater writes: right checksums, none malformed, and
# the fields that stand in crates/cli/examples/sample_pgm.rs. Of SPMRs tshark 4.0 knows nothing (UDP port 3056, 16 bytes); they are left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

command -v tshark >/dev/null || {
    echo "pgm.sh: tshark is missing; ./ci.sh interop installs it" >&2
    exit 1
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cargo build --quiet --locked --workspace --example sample_pgm
"${CARGO_TARGET_DIR:-target}/debug/examples/sample_pgm" "$scratch/pgm.pcap"

reads() {
    tshark -r "$scratch/pgm.pcap" -d udp.port==3056,pgm "$@" 2>"$scratch/said" || {
        echo "pgm.sh: tshark: $(cat "$scratch/said")" >&2
        exit 1
    }
}

# same NAME FIELD...: what tshark reads in these fields, packet by packet; the lines expected are on standard input.
same() {
    local name=$1 options=() field
    shift
    for field in "$@"; do options+=(-e "$field"); done
    reads -T fields -E 'separator= ' -E occurrence=a "${options[@]}" | sed 's/  */ /g; s/^ //; s/ $//' | grep . >"$scratch/theirs"
    diff -u - "$scratch/theirs" >&2 || {
        echo "pgm.sh: $name: tshark reads (+) something else than was written (-)" >&2
        exit 1
    }
}

filter='(_ws.malformed || !pgm || pgm.hdr.cksum.status != "Good") && udp.length != 24'
wrong=$(reads -Y "$filter" | wc -l)
[ "$wrong" -eq 0 ] || {
    reads -Y "$filter" >&2
    echo "pgm.sh: $wrong packets are malformed, not PGM, or of a wrong checksum to tshark" >&2
    exit 1
}
same types pgm.hdr.type pgm.hdr.tsdulen <<'END'
0x00 0
0x00 0
0x00 0
0x04 5
0x04 5
0x04 5
0x04 5
0x05 5
0x08 0
0x08 0
0x09 0
0x0a 0
0x0a 0
0x0d 0
END
same 'SPM and data' pgm.spm.sqn pgm.spm.trail pgm.spm.lead pgm.spm.path.ipv4 pgm.spm.path.ipv6 pgm.opts.parity_prm.prm_grp <<'END'
0x00000007 0x00000010 0x0000001f 192.0.2.1
0x00000007 0x00000010 0x0000001f 2001:db8::1
0x00000007 0x00000010 0x0000001f 192.0.2.1 0x00000008
0x00000020 0x00000010
0x00000020 0x00000010
0x00000020 0x00000010
0x00000020 0x00000010 0x00000004
0x00000014 0x00000010
END
same 'NAK and NCF' pgm.nak.sqn pgm.nak.src.ipv4 pgm.nak.grp.ipv4 pgm.nak.src.ipv6 pgm.nak.grp.ipv6 <<'END'
0xffffffff 192.0.2.1 239.255.72.87
0xffffffff 192.0.2.1 239.255.72.87
0xffffffff 192.0.2.1 239.255.72.87
0xffffffff 2001:db8::1 ff3e::8000:4857
0xffffffff 192.0.2.1 239.255.72.87
END
same 'fragments and joins' pgm.opts.fragment.first_sqn pgm.opts.fragment.fragment_offset pgm.opts.fragment.total_length \
    pgm.opts.join.min_join <<'END'
0x0000001f 1024 1029 0x00000010
0x00000010
END
lists=$(reads -T fields -e pgm.opts.nak.list | grep -c . || true)
[ "$lists" -eq 2 ] || { echo "pgm.sh: tshark reads $lists NAK lists, not 2" >&2; exit 1; }
echo "pgm.sh: every type and option: tshark reads the same, with right checksums"
