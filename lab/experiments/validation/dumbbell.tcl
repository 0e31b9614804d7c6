# The dumbbell of dumbbell.cc in ns-2, with the same options and the same line of JSON: ns dumbbell.tcl --flows=5 ...
# Two things of ns-2 are undone here: a drop-tail limit of N holds N - 1 packets there; and headers are 40 bytes there.

array set o {
    flows 1 variant newreno rate 10e6 delay 0.02 access_rate 100e6 access_delay 0.001 delay_step 0.001
    queue drop-tail limit 25 red_min 5 red_max 15 red_weight 0.002 red_max_p 0.1 red_mean 1042
    gentle false wait true ecn false loss 0 segment 1000 header 42 initial_window 2 window 10000
    delack 1 delack_time 0.1 min_rto 0.2 limited_transmit true
    duration 100 warmup 20 start_spread 1 run 1
}
foreach arg $argv {
    if {![regexp {^--(\w+)=(.+)$} $arg -> key value] || ![info exists o($key)]} { error "no such option: $arg" }
    set o($key) $value
}

set ns [new Simulator]
$defaultRNG seed $o(run)
Agent/TCP set tcpip_base_hdr_size_ $o(header)
Agent/TCP set packetSize_ $o(segment)
Agent/TCP set window_ $o(window)
Agent/TCP set maxcwnd_ 0
Agent/TCP set windowInit_ $o(initial_window)
Agent/TCP set minrto_ $o(min_rto)
Agent/TCP set tcpTick_ 0.001
Agent/TCP set singledup_ [expr {$o(limited_transmit)}]
Agent/TCP set ecn_ [expr {$o(ecn)}]
Agent/TCPSink set packetSize_ $o(header)
Agent/TCPSink set interval_ $o(delack_time)

Queue/RED set thresh_ $o(red_min)
Queue/RED set maxthresh_ $o(red_max)
Queue/RED set q_weight_ $o(red_weight)
Queue/RED set linterm_ [expr {1.0 / $o(red_max_p)}]
Queue/RED set mean_pktsize_ $o(red_mean)
Queue/RED set gentle_ $o(gentle)
Queue/RED set wait_ $o(wait)
Queue/RED set setbit_ $o(ecn)
Queue/RED set bytes_ false
Queue/RED set queue_in_bytes_ false
Queue/RED set adaptive_ 0
Queue/RED set use_mark_p_ false

set left [$ns node]
set right [$ns node]
if {$o(queue) == "red"} { set kind RED; set limit $o(limit) } else { set kind DropTail; set limit [expr {$o(limit) + 1}] }
$ns simplex-link $left $right $o(rate) $o(delay) $kind
$ns queue-limit $left $right $limit
$ns simplex-link $right $left $o(rate) $o(delay) DropTail
$ns queue-limit $right $left 100000
if {$o(loss) > 0} {
    set model [new ErrorModel]
    $model set rate_ $o(loss)
    $model unit pkt
    $model ranvar [new RandomVariable/Uniform]
    $model drop-target [new Agent/Null]
    $ns lossmodel $model $left $right
}
set monitor [$ns monitor-queue $left $right [open /dev/null w] 1]

proc access {a b delay} {
    global ns o
    $ns duplex-link $a $b $o(access_rate) $delay DropTail
    $ns queue-limit $a $b 100000
    $ns queue-limit $b $a 100000
}

set family [expr {$o(variant) == "sack" ? "Sack1" : "Newreno"}]
set sink_kind Agent/TCPSink
if {$o(variant) == "sack"} { append sink_kind /Sack1 }
if {$o(delack) > 1} { append sink_kind /DelAck }
set start [new RandomVariable/Uniform]
$start set min_ 0
$start set max_ $o(start_spread)
for {set i 0} {$i < $o(flows)} {incr i} {
    set a [$ns node]
    set b [$ns node]
    access $a $left [expr {$o(access_delay) + $i * $o(delay_step)}]
    access $right $b $o(access_delay)
    set tcp($i) [new Agent/TCP/$family]
    set sink [new $sink_kind]
    $ns attach-agent $a $tcp($i)
    $ns attach-agent $b $sink
    $ns connect $tcp($i) $sink
    set ftp [new Application/FTP]
    $ftp attach-agent $tcp($i)
    $ns at [$start value] "$ftp start"
}

proc reading {} {
    global ns o tcp monitor model
    set waiting [$monitor get-pkts-integrator]
    $waiting newpoint [$ns now] [$waiting set lasty_]
    set acked {}
    for {set i 0} {$i < $o(flows)} {incr i} { lappend acked [$tcp($i) set ack_] }
    list $acked [$monitor set parrivals_] [$monitor set pdrops_] [$monitor set pmarks_] [$waiting set sum_] \
        [$monitor set bdepartures_]
}

proc finish {} {
    global o before
    set after [reading]
    set time [expr {$o(duration) - $o(warmup)}]
    set goodput {}
    foreach a [lindex $after 0] b [lindex $before 0] {
        lappend goodput [expr {($a - $b) * $o(segment) * 8.0 / $time}]
    }
    foreach name {offered dropped marked waiting bytes} a [lrange $after 1 end] b [lrange $before 1 end] {
        set $name [expr {$a - $b}]
    }
    puts "{\"goodput\": \[[join $goodput {, }]\], \"offered\": $offered, \"dropped\": $dropped, \"marked\": $marked,\
        \"lost\": 0, \"queue\": [expr {$waiting / $time}], \"throughput\": [expr {$bytes * 8.0 / $time}]}"
    exit 0
}

$ns at $o(warmup) {set before [reading]}
$ns at $o(duration) finish
$ns run
