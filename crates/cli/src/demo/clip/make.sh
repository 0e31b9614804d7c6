#!/usr/bin/env bash
# Makes the prepared clip of `headwater demo --video`: t0.mp4 to t2.mp4 are the rungs, t3.mp4 is the audio.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

video() {
    echo "-c:v libx264 -preset slow -b:v $1k -maxrate $2k -bufsize $3k -bf 3 -sc_threshold 0 -g 25 -keyint_min 25 -threads 1 -tag:v avc3" \
        "-bsf:v dump_extra=freq=keyframe -fflags +bitexact -f mp4" \
        "-movflags +frag_keyframe+empty_moov+default_base_moof+negative_cts_offsets -t 4"
}

# shellcheck disable=SC2046
ffmpeg -y -hide_banner -loglevel error -f lavfi -i testsrc2=size=640x360:rate=25 \
    -f lavfi -i "aevalsrc=exprs='if(lt(mod(t,1),0.06),0.2*sin(2*PI*880*t),0)':s=48000" \
    -filter_complex "[0:v]split=3[a][b][c];[a]scale=320:180,setsar=1,format=yuv420p[v0];[b]setsar=1,format=yuv420p[v1];[c]setsar=1,format=yuv420p[v2]" \
    -map "[v0]" $(video 46 46 23) t0.mp4 -map "[v1]" $(video 400 400 200) t1.mp4 -map "[v2]" $(video 900 1000 500) t2.mp4 \
    -map 1:a -c:a libopus -b:a 16k -ac 1 -vbr off -frame_duration 20 -fflags +bitexact -f mp4 \
    -movflags +empty_moov+default_base_moof -frag_duration 1000000 -t 4 t3.mp4
