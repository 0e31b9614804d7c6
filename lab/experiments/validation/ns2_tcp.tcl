# One greedy TCP of ns-2 under independent loss of its data: how many segments it sends after 20 s of warm-up.
#
#     apt-get install ns2
#     ns ns2_tcp.tcl > ns2_tcp.csv        (runs itself once per scenario)
#
# `cargo test -p headwater-netsim --test tcp ns2` compares the profile `ns2005` with the output.

set warm_up 20.0

proc scenarios {} {
    puts "agent,b,p,rtt_ms,seconds,segments"
    foreach agent {Reno Newreno Sack1} {
        foreach b {1 2} {
            foreach {p rtt_ms seconds} {0.01 20 100 0.05 20 400 0.01 100 600 0.02 100 800 0.05 100 1500 0.05 500 4000} {
                puts [exec ns [info script] $agent $b $p $rtt_ms $seconds]
            }
        }
    }
}

proc sink_of {agent b} {
    set kind TCPSink
    if {$agent == "Sack1"} { append kind /Sack1 }
    if {$b == 2} { append kind /DelAck }
    return [new Agent/$kind]
}

proc scenario {agent b p rtt_ms seconds} {
    global warm_up tcp
    set ns [new Simulator]
    set from [$ns node]
    set to [$ns node]
    $ns duplex-link $from $to 1Gb [expr $rtt_ms / 2.0]ms DropTail
    $ns queue-limit $from $to 100000
    set generator [new RNG]
    $generator seed 3
    set uniform [new RandomVariable/Uniform]
    $uniform use-rng $generator
    set losses [new ErrorModel]
    $losses unit pkt
    $losses set rate_ $p
    $losses ranvar $uniform
    $losses drop-target [new Agent/Null]
    $ns link-lossmodel $losses $from $to
    foreach {name value} {
        minrto_ 0.2 tcpTick_ 0.01 window_ 1000 maxcwnd_ 1000 packetSize_ 960 windowInit_ 2 singledup_ 1 precisionReduce_ true
    } {
        Agent/TCP set $name $value
    }
    set tcp [new Agent/TCP/$agent]
    set sink [sink_of $agent $b]
    $ns attach-agent $from $tcp
    $ns attach-agent $to $sink
    $ns connect $tcp $sink
    set source [new Application/FTP]
    $source attach-agent $tcp
    $ns at 0.0 "$source start"
    $ns at $warm_up {set before [$tcp set ndatapack_]}
    $ns at [expr $warm_up + $seconds] "report $agent $b $p $rtt_ms $seconds"
    $ns run
}

proc report {agent b p rtt_ms seconds} {
    global tcp before
    puts "$agent,$b,$p,$rtt_ms,$seconds,[expr [$tcp set ndatapack_] - $before]"
    exit 0
}

if {$argc == 0} { scenarios } else { eval scenario $argv }
