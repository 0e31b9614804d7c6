// A dumbbell in ns-3: n greedy TCPs from left to right over one bottleneck, each with access links of its own.
//
//   sender i -- access (access_rate, access_delay + i * delay_step) -- left == bottleneck == right -- access -- receiver i
//
// Everything is said on the command line, nothing is left to ns-3's defaults; times are in seconds, rates in bit/s,
// sizes in bytes, queues in packets. Prints one JSON line about [warmup, duration). Queues count as ours do: what waits,
// not what is being sent. Waiting at the bottleneck is in the device (drop tail), or in the queue discipline plus the
// one packet that ns-3's traffic control keeps in the device (RED).

#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace {

// Loses each packet larger than an acknowledgement with a fixed probability: data, not handshakes or ACKs.
class DataLoss : public ErrorModel {
  public:
    static TypeId GetTypeId() {
        static TypeId tid = TypeId("DataLoss").SetParent<ErrorModel>().AddConstructor<DataLoss>();
        return tid;
    }
    void Set(double probability, uint32_t larger_than, int64_t stream) {
        m_probability = probability;
        m_largerThan = larger_than;
        m_draw = CreateObject<UniformRandomVariable>();
        m_draw->SetStream(stream);
    }

  private:
    bool DoCorrupt(Ptr<Packet> packet) override {
        return packet->GetSize() > m_largerThan && m_draw->GetValue() < m_probability;
    }
    void DoReset() override {}
    double m_probability = 0;
    uint32_t m_largerThan = 0;
    Ptr<UniformRandomVariable> m_draw;
};

// What is counted at the bottleneck, in the measured window only.
struct Counts {
    bool counting = false;
    uint64_t offered = 0, dropped = 0, marked = 0, lost = 0, sent_bytes = 0;
    std::map<std::string, uint32_t> waiting;
    double integral = 0, since = 0;

    void Integrate() {
        const double now = Simulator::Now().GetSeconds();
        double all = 0;
        for (const auto& [where, packets] : waiting) {
            all += packets;
        }
        integral += counting ? all * (now - since) : 0;
        since = now;
    }
} counts;

void Waiting(std::string where, uint32_t, uint32_t packets) {
    counts.Integrate();
    counts.waiting[where] = packets;
}

template <typename T>
void Count(uint64_t Counts::*counter, Ptr<const T>) {
    counts.*counter += counts.counting;
}

void Mark(Ptr<const QueueDiscItem>, const char*) {
    counts.marked += counts.counting;
}

void Sent(Ptr<const Packet> packet) {
    counts.sent_bytes += counts.counting ? packet->GetSize() : 0;
}

}  // namespace

int main(int argc, char* argv[]) {
    uint32_t flows = 1, limit = 25, segment = 1000, initial_window = 2, delack = 1, window = 10000;
    double rate = 10e6, delay = 0.02, access_rate = 100e6, access_delay = 0.001, delay_step = 0.001;
    double duration = 100, warmup = 20, start_spread = 1, loss = 0, min_rto = 0.2, delack_time = 0.1;
    double red_min = 5, red_max = 15, red_weight = 0.002, red_max_p = 0.1;
    uint32_t red_mean = 1042, run = 1;
    std::string queue = "drop-tail", variant = "newreno";
    bool ecn = false, gentle = false, wait = true, hard_drop = true, limited_transmit = true;
    CommandLine cmd(__FILE__);
    cmd.AddValue("flows", "TCPs", flows);
    cmd.AddValue("variant", "newreno or sack", variant);
    cmd.AddValue("rate", "of the bottleneck", rate);
    cmd.AddValue("delay", "of the bottleneck, one way", delay);
    cmd.AddValue("access_rate", "of access links", access_rate);
    cmd.AddValue("access_delay", "of each access link of flow 0", access_delay);
    cmd.AddValue("delay_step", "added on the sender's side for each further flow", delay_step);
    cmd.AddValue("queue", "drop-tail or red", queue);
    cmd.AddValue("limit", "packets that may wait", limit);
    cmd.AddValue("red_min", "th_min", red_min);
    cmd.AddValue("red_max", "th_max", red_max);
    cmd.AddValue("red_weight", "w", red_weight);
    cmd.AddValue("red_max_p", "max_p", red_max_p);
    cmd.AddValue("red_mean", "mean packet", red_mean);
    cmd.AddValue("gentle", "RED", gentle);
    cmd.AddValue("wait", "RED", wait);
    cmd.AddValue("hard_drop", "RED drops beyond all draws even with ECN", hard_drop);
    cmd.AddValue("ecn", "RED marks, TCPs are capable", ecn);
    cmd.AddValue("loss", "of data at the far end of the bottleneck", loss);
    cmd.AddValue("segment", "payload", segment);
    cmd.AddValue("initial_window", "segments", initial_window);
    cmd.AddValue("window", "the receiver's, segments", window);
    cmd.AddValue("delack", "segments per acknowledgement", delack);
    cmd.AddValue("delack_time", "longest delay of an acknowledgement", delack_time);
    cmd.AddValue("min_rto", "smallest retransmission timeout", min_rto);
    cmd.AddValue("limited_transmit", "RFC 3042", limited_transmit);
    cmd.AddValue("duration", "end of the run", duration);
    cmd.AddValue("warmup", "begin of the window", warmup);
    cmd.AddValue("start_spread", "flows start uniformly in this", start_spread);
    cmd.AddValue("run", "number of the run", run);
    cmd.Parse(argc, argv);

    RngSeedManager::SetSeed(1);
    RngSeedManager::SetRun(run);
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::TcpNewReno"));
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType", StringValue("ns3::TcpClassicRecovery"));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(variant == "sack"));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(Seconds(min_rto)));
    Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(MilliSeconds(1)));
    Config::SetDefault("ns3::TcpSocketBase::LimitedTransmit", BooleanValue(limited_transmit));
    Config::SetDefault("ns3::TcpSocketBase::UseEcn", StringValue(ecn ? "On" : "Off"));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(segment));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(initial_window));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(delack));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(Seconds(delack_time)));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(2 * window * segment));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(window * segment));

    NodeContainer senders, receivers, routers;
    senders.Create(flows);
    receivers.Create(flows);
    routers.Create(2);
    InternetStackHelper stack;
    stack.InstallAll();

    PointToPointHelper middle;
    middle.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(rate))));
    middle.SetChannelAttribute("Delay", TimeValue(Seconds(delay)));
    const bool red = queue == "red";
    const uint32_t in_device = red ? 1 : limit;
    middle.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, in_device)));
    if (!red) {
        // With flow control, packets for a full device would be dropped above it, where nothing counts them.
        middle.DisableFlowControl();
    }
    NetDeviceContainer bottleneck = middle.Install(routers);
    // The way back is not the subject: it never drops.
    bottleneck.Get(1)->GetObject<PointToPointNetDevice>()->GetQueue()->SetMaxSize(QueueSize("100000p"));

    Ipv4AddressHelper addresses;
    addresses.SetBase("10.0.0.0", "255.255.255.252");
    if (red) {
        TrafficControlHelper control;
        control.SetRootQueueDisc(
            "ns3::RedQueueDisc", "MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, limit)), "MinTh",
            DoubleValue(red_min), "MaxTh", DoubleValue(red_max), "QW", DoubleValue(red_weight), "LInterm",
            DoubleValue(1 / red_max_p), "MeanPktSize", UintegerValue(red_mean), "Gentle", BooleanValue(gentle), "Wait",
            BooleanValue(wait), "UseEcn", BooleanValue(ecn), "UseHardDrop", BooleanValue(hard_drop), "LinkBandwidth",
            DataRateValue(DataRate(uint64_t(rate))), "LinkDelay", TimeValue(Seconds(delay)));
        QueueDiscContainer disc = control.Install(bottleneck.Get(0));
        disc.Get(0)->TraceConnectWithoutContext("PacketsInQueue", MakeBoundCallback(&Waiting, std::string("disc")));
        disc.Get(0)->TraceConnectWithoutContext("Enqueue", MakeBoundCallback(&Count<QueueDiscItem>, &Counts::offered));
        disc.Get(0)->TraceConnectWithoutContext("DropBeforeEnqueue", MakeCallback(+[](Ptr<const QueueDiscItem>, const char*) {
            counts.dropped += counts.counting;
            counts.offered += counts.counting;
        }));
        disc.Get(0)->TraceConnectWithoutContext("Mark", MakeCallback(&Mark));
    }
    addresses.Assign(bottleneck);
    // No other device has a queue discipline; without flow control none is given to it in the first place.
    TrafficControlHelper none;
    if (red) {
        none.Uninstall(bottleneck.Get(1));
    }

    Ptr<PointToPointNetDevice> device = bottleneck.Get(0)->GetObject<PointToPointNetDevice>();
    Ptr<Queue<Packet>> device_queue = device->GetQueue();
    device_queue->TraceConnectWithoutContext("PacketsInQueue", MakeBoundCallback(&Waiting, std::string("device")));
    if (!red) {
        device_queue->TraceConnectWithoutContext("Enqueue", MakeBoundCallback(&Count<Packet>, &Counts::offered));
        device_queue->TraceConnectWithoutContext("DropBeforeEnqueue", MakeBoundCallback(&Count<Packet>, &Counts::offered));
        device_queue->TraceConnectWithoutContext("DropBeforeEnqueue", MakeBoundCallback(&Count<Packet>, &Counts::dropped));
    }
    device->TraceConnectWithoutContext("PhyTxBegin", MakeCallback(&Sent));
    Ptr<DataLoss> data_loss = CreateObject<DataLoss>();
    data_loss->Set(loss, 200, 1000);
    bottleneck.Get(1)->SetAttribute("ReceiveErrorModel", PointerValue(data_loss));
    bottleneck.Get(1)->TraceConnectWithoutContext("PhyRxDrop", MakeBoundCallback(&Count<Packet>, &Counts::lost));

    Ptr<UniformRandomVariable> start = CreateObject<UniformRandomVariable>();
    start->SetStream(2000);
    ApplicationContainer sinks;
    for (uint32_t i = 0; i < flows; ++i) {
        PointToPointHelper access;
        access.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(access_rate))));
        access.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("100000p"));
        access.SetChannelAttribute("Delay", TimeValue(Seconds(access_delay + i * delay_step)));
        NetDeviceContainer left = access.Install(senders.Get(i), routers.Get(0));
        access.SetChannelAttribute("Delay", TimeValue(Seconds(access_delay)));
        NetDeviceContainer right = access.Install(routers.Get(1), receivers.Get(i));
        addresses.NewNetwork();
        addresses.Assign(left);
        addresses.NewNetwork();
        Ipv4InterfaceContainer ends = addresses.Assign(right);
        none.Uninstall(left);
        none.Uninstall(right);

        PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), 9));
        sinks.Add(sink.Install(receivers.Get(i)));
        BulkSendHelper bulk("ns3::TcpSocketFactory", InetSocketAddress(ends.GetAddress(1), 9));
        bulk.SetAttribute("SendSize", UintegerValue(segment));
        bulk.Install(senders.Get(i)).Start(Seconds(start->GetValue(0, start_spread)));
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    std::vector<uint64_t> before(flows);
    Simulator::Schedule(Seconds(warmup), [&] {
        counts.Integrate();
        counts.counting = true;
        for (uint32_t i = 0; i < flows; ++i) {
            before[i] = DynamicCast<PacketSink>(sinks.Get(i))->GetTotalRx();
        }
    });
    Simulator::Stop(Seconds(duration));
    Simulator::Run();
    counts.Integrate();

    const double window_s = duration - warmup;
    std::cout << "{\"goodput\": [";
    for (uint32_t i = 0; i < flows; ++i) {
        const uint64_t bytes = DynamicCast<PacketSink>(sinks.Get(i))->GetTotalRx() - before[i];
        std::cout << (i ? ", " : "") << bytes * 8 / window_s;
    }
    std::cout << "], \"offered\": " << counts.offered << ", \"dropped\": " << counts.dropped
              << ", \"marked\": " << counts.marked << ", \"lost\": " << counts.lost
              << ", \"queue\": " << counts.integral / window_s
              << ", \"throughput\": " << counts.sent_bytes * 8 / window_s << "}" << std::endl;
    Simulator::Destroy();
    return 0;
}
