#!/usr/bin/env bash
# Stock tshark and `headwater inspect` must say the same of every packet, field by field, and tshark must find none
# malformed. Looked at: a signed session of several files for each --fec, as `headwater send --pcap` records it on loopback,
# messages by unicast as unicast.py writes them by their pages, signed and encrypted sessions of M2C, and a made-up capture with every header extension,
# field size and FEC scheme. By docs/reference/wire/alc.lua tshark must also read Headwater's own extensions as inspect does.
#
# What tshark 4.0 cannot read is left out of the comparison, and only that:
#   FEC Encoding ID 5        it names the scheme, and splits neither FEC payload ID nor symbol
#   FEC Encoding ID 2        it reads a layout that RFC 5510 does not have; no packet of it here
#   EXT_FTI of 3, 4 and 5    it reads the transfer length alone; so nothing here has max_number_encoding_symbols
#   TOI 0                    it shows the payload as XML; the XML is compared instead
#   EXT_CENC                 it reads the code from the last reserved byte, where RFC 6726 section 3.4.3 has it in the first
#   EXT 128-255, unknown     it leaves out the first of their three bytes
#   encrypted payloads       alc.lua keeps them from the dissector of ALC
# It calls extension 2 EXT_CC, but shows the same bytes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

PORT=17287
PASSES=2

command -v tshark >/dev/null || {
    echo "tshark.sh: tshark is missing; ./ci.sh interop installs it" >&2
    exit 1
}
cargo build --quiet --locked --workspace --bin headwater --example sample_capture
target=${CARGO_TARGET_DIR:-target}/debug
headwater=$target/headwater
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    echo "tshark.sh: $*" >&2
    exit 1
}

# Running as root makes tshark say so each time; what else it has to say is shown.
tshark_reads() {
    local capture=$1
    shift
    tshark -r "$capture" -X lua_script:docs/reference/wire/alc.lua -d "udp.port==$PORT,${dissector:-alc}" "$@" 2>"$scratch/said" || fail "tshark: $(cat "$scratch/said")"
    grep -v 'Running as user' "$scratch/said" >&2 || true
}

# Rows as tshark would give them: cells that it cannot read are emptied.
as_tshark_knows() {
    awk -F '\t' -v OFS='\t' '
        NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; print; next }
        function empty(name) { $(column[name]) = "" }
        {
            code = $(column["rmt-lct.codepoint"]); toi = $(column["rmt-lct.toi"])
            if (code == 5) { empty("rmt-fec.sbn"); empty("rmt-fec.esi"); empty("alc.payload") }
            if (code >= 3 && code <= 5) {
                empty("rmt-fec.fti.encoding_symbol_length"); empty("rmt-fec.fti.max_source_block_length")
                empty("rmt-fec.fti.max_number_encoding_symbols")
            }
            if (toi == "0") empty("alc.payload")
            if (("," $(column["rmt-lct.hec.type"]) ",") ~ /,98,/) { empty("rmt-fec.encoding_id"); empty("alc.payload") }
            if ($(column["rmt-lct.cenc"]) != "") $(column["rmt-lct.cenc"]) = 0
            # tshark has data of unknown extensions alone, and leaves out the first byte of those of one word.
            types = split($(column["rmt-lct.hec.type"]), type, ","); count = split($(column["rmt-lct.hec.data"]), data, ",")
            for (i = at = 1; i <= types; i++) {
                if (type[i] ~ /^(2|64|192|193)$/) continue
                if (type[i] ~ /^22[2456]$/) sub(/^../, "", data[at])
                at++
            }
            all = data[1]
            for (i = 2; i <= count; i++) all = all "," data[i]
            $(column["rmt-lct.hec.data"]) = all
            print
        }'
}

# compare NAME CAPTURE: every frame, every column.
compare() {
    local name=$1 capture=$2 columns options=() column rows malformed
    "$headwater" inspect --fields tsv --port "$PORT" "$capture" >"$scratch/whole"
    as_tshark_knows <"$scratch/whole" >"$scratch/ours"
    IFS=$'\t' read -r -a columns <"$scratch/ours"
    for column in "${columns[@]}"; do options+=(-e "$column"); done
    tshark_reads "$capture" -T fields -E header=y -E separator=/t -E occurrence=a "${options[@]}" >"$scratch/theirs"
    rows=$(($(wc -l <"$scratch/ours") - 1))
    [ "$rows" -gt 0 ] || fail "$name: no packet"
    diff -u "$scratch/theirs" "$scratch/ours" | head -40 >"$scratch/diff" || true
    [ ! -s "$scratch/diff" ] || fail "$name: tshark (-) and inspect (+) differ: $(cat "$scratch/diff")"
    malformed=$(tshark_reads "$capture" -Y '_ws.malformed || !alc' | wc -l)
    [ "$malformed" -eq 0 ] || fail "$name: $malformed packets are malformed or not ALC to tshark"
    echo "tshark.sh: $name: $rows packets, ${#columns[@]} fields each: the same, none malformed"
}

# compare_fdt NAME CAPTURE: the elements of the FDT, as XML.
compare_fdt() {
    local name=$1 capture=$2
    "$headwater" inspect --port "$PORT" "$capture" | sed -n 's/^ *| *//p' | grep '^<F' | sort -u >"$scratch/ours"
    tshark_reads "$capture" -Y xml -T fields -E 'aggregator=|' -e xml.tag | tr '|' '\n' | grep '^<F' |
        sort -u >"$scratch/theirs"
    [ -s "$scratch/ours" ] || fail "$name: no FDT"
    diff -u "$scratch/theirs" "$scratch/ours" >&2 || fail "$name: tshark (-) and inspect (+) read another FDT"
    echo "tshark.sh: $name: FDT of $(wc -l <"$scratch/ours") elements: the same"
}

# compare_extensions NAME CAPTURE EXTENSION...: Headwater's own extensions, in order. Each EXTENSION must be
# there.
compare_extensions() {
    local name=$1 capture=$2 dissector=hwalc extension malformed
    shift 2
    "$headwater" inspect --port "$PORT" "$capture" |
        grep -oE 'EXT_(AUTH|MANIFEST|CRYPT|KEY|SEQ|LEVELS|MEMBERS|LATENESS)\([^)]*\)' >"$scratch/ours"
    tshark_reads "$capture" -T fields -E occurrence=a -E 'aggregator=|' -e hwalc.extension | tr '|' '\n' |
        sed '/^$/d' >"$scratch/theirs"
    diff -u "$scratch/theirs" "$scratch/ours" | head -40 >"$scratch/diff" || true
    [ ! -s "$scratch/diff" ] || fail "$name: alc.lua (-) and inspect (+) differ: $(cat "$scratch/diff")"
    for extension in "$@"; do
        grep -q "^$extension(" "$scratch/ours" || fail "$name: no $extension"
    done
    malformed=$(tshark_reads "$capture" -Y '_ws.malformed || hwalc.malformed || !hwalc || !alc' | wc -l)
    [ "$malformed" -eq 0 ] || fail "$name: $malformed packets are malformed, or not Headwater's, to tshark"
    echo "tshark.sh: $name: $(wc -l <"$scratch/ours") extensions of ours: the same, none malformed"
}

# Every field must have been seen with a value, or their equality says nothing.
require_every_field() {
    awk -F '\t' -v excused=rmt-fec.fti.max_number_encoding_symbols '
        NR == 1 { n = split($0, name); next } { for (i = 1; i <= n; i++) if ($i != "") seen[i] = 1 }
        END { for (i = 1; i <= n; i++) if (!seen[i] && name[i] != excused) { print name[i]; bad = 1 }
              exit bad }' "$1" ||
        fail "the made-up capture has no packet with the fields above"
}

mkdir -p "$scratch/files/nested"
head -c 300000 /dev/urandom >"$scratch/files/large.bin"
head -c 5000 /dev/urandom >"$scratch/files/nested/small.bin"
: >"$scratch/files/empty"
for fec in raptorq rs ldpc-staircase ldpc-triangle none; do
    sent=("$scratch/files/large.bin" "$scratch/files/nested")
    # tshark takes each packet of TOI 0 for a whole XML, so the FDT must stay one symbol; the other codes say more of each file.
    case $fec in raptorq | none) sent+=("$scratch/files/empty") ;; esac
    "$headwater" send --quiet --interface lo --group "239.255.72.88:$PORT" --rate 20M --passes "$PASSES" --fec "$fec" \
        --pcap "$scratch/$fec.pcap" "${sent[@]}"
    compare "--fec $fec" "$scratch/$fec.pcap"
    compare_fdt "--fec $fec" "$scratch/$fec.pcap"
    compare_extensions "--fec $fec" "$scratch/$fec.pcap" EXT_AUTH EXT_KEY EXT_MANIFEST
done
"$headwater" keygen --group "$scratch/group.key"
for encrypted in "" "--group-key $scratch/group.key"; do
    name="m2c${encrypted:+, encrypted}"
    # Nobody listens: by demand the rate would be too low for manifests.
    # shellcheck disable=SC2086
    "$headwater" send --quiet --interface lo --group "239.255.72.88:$PORT" --max-rate 8M --demand off --duration 4s $encrypted \
        --pcap "$scratch/m2c.pcap" "$scratch/files/large.bin"
    if [ -n "$encrypted" ]; then
        dissector=hwalc compare "$name" "$scratch/m2c.pcap"
        compare_extensions "$name" "$scratch/m2c.pcap" EXT_AUTH EXT_KEY EXT_MANIFEST EXT_CRYPT EXT_LATENESS
        clear=$(dissector=hwalc tshark_reads "$scratch/m2c.pcap" -Y 'rmt-fec.encoding_id' | wc -l)
        [ "$clear" -eq 0 ] || fail "$name: $clear packets have content in the clear"
    else
        compare "$name" "$scratch/m2c.pcap"
        compare_extensions "$name" "$scratch/m2c.pcap" EXT_AUTH EXT_KEY EXT_MANIFEST EXT_LATENESS
    fi
done
PORT=7287
python3 -B tests/interop/unicast.py "$scratch/unicast.pcap" "$PORT" >"$scratch/ours"
dissector=hwalc tshark_reads "$scratch/unicast.pcap" -T fields -e hwalc.message >"$scratch/theirs"
diff -u "$scratch/theirs" "$scratch/ours" >&2 || fail "messages by unicast: alc.lua (-) and the pages (+) differ"
malformed=$(dissector=hwalc tshark_reads "$scratch/unicast.pcap" -Y '_ws.malformed || hwalc.malformed || !hwalc' | wc -l)
[ "$malformed" -eq 0 ] || fail "$malformed messages by unicast are malformed to tshark"
echo "tshark.sh: messages by unicast: $(wc -l <"$scratch/ours"): the same, none malformed"
"$target/examples/sample_capture" "$scratch/sample.pcap"
compare "every extension, size and scheme" "$scratch/sample.pcap"
compare_extensions "every extension, size and scheme" "$scratch/sample.pcap" EXT_SEQ EXT_LEVELS EXT_LATENESS
require_every_field "$scratch/theirs"
