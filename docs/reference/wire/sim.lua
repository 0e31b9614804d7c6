-- Wireshark's view of SIM's feedback, of what receivers tell relays that they hold, and of what SIM says in data packets: docs/reference/wire/sim.md.
--   tshark -X lua_script:docs/reference/wire/sim.lua -d udp.port==PORT,hwsim
-- Data packets go on to the dissector of ALC.

local sim = Proto("hwsim", "SIM congestion control")

local f = sim.fields
f.version = ProtoField.uint8("hwsim.version", "Version")
f.flags = ProtoField.uint8("hwsim.flags", "Flags", base.HEX)
f.last = ProtoField.bool("hwsim.last", "Last of the request", 8, nil, 0x01)
f.request = ProtoField.uint16("hwsim.request", "Feedback request")
f.source = ProtoField.uint32("hwsim.source", "Source", base.HEX)
f.session = ProtoField.uint24("hwsim.session", "Session", base.HEX)
f.rank = ProtoField.uint8("hwsim.rank", "Rank")
f.reports = ProtoField.uint32("hwsim.reports", "Count of reports")
f.congested = ProtoField.uint32("hwsim.congested", "Count of congested reports")
f.population = ProtoField.uint32("hwsim.population", "Population")
f.min_rate = ProtoField.uint32("hwsim.min_rate", "Least received rate (100 bit/s)")
f.max_rate = ProtoField.uint32("hwsim.max_rate", "Most received rate (100 bit/s)")
f.groups = ProtoField.uint8("hwsim.groups", "Groups held")
f.timestamp = ProtoField.uint32("hwsim.timestamp", "Timestamp (0.1 ms)")
f.echo = ProtoField.uint32("hwsim.echo", "Echoed timestamp (0.1 ms)")
f.hold = ProtoField.uint32("hwsim.hold", "Hold (0.1 ms)")
f.sequence = ProtoField.uint32("hwsim.sequence", "Sequence number within the group")

local VERSION = 1
local REPORT_BYTES = 40
local HOLDING_BYTES = 8
-- The congestion control information stands behind the first word of an LCT header.
local CCI_AT, CCI_BYTES = 4, 12

local function report(buffer, pinfo, tree)
  local packet = tree:add(sim, buffer(0, REPORT_BYTES))
  packet:add(f.version, buffer(0, 1))
  packet:add(f.flags, buffer(1, 1)):add(f.last, buffer(1, 1))
  packet:add(f.request, buffer(2, 2))
  packet:add(f.source, buffer(4, 4))
  packet:add(f.session, buffer(8, 3))
  packet:add(f.rank, buffer(11, 1))
  local names = { "reports", "congested", "population", "min_rate", "max_rate", "echo", "hold" }
  for index, name in ipairs(names) do
    packet:add(f[name], buffer(8 + 4 * index, 4))
  end
  pinfo.cols.protocol = "SIM"
  pinfo.cols.info = string.format("Feedback to request %d, rank %d: %d of %d congested",
    buffer(2, 2):uint(), buffer(11, 1):uint(), buffer(16, 4):uint(), buffer(12, 4):uint())
  return REPORT_BYTES
end

local function holding(buffer, pinfo, tree)
  local packet = tree:add(sim, buffer(0, HOLDING_BYTES))
  packet:add(f.version, buffer(0, 1))
  packet:add(f.groups, buffer(1, 1))
  packet:add(f.session, buffer(4, 3))
  pinfo.cols.protocol = "SIM"
  pinfo.cols.info = string.format("%d groups held", buffer(1, 1):uint())
  return HOLDING_BYTES
end

local function data(buffer, pinfo, tree)
  local packet = tree:add(sim, buffer(CCI_AT, CCI_BYTES), "SIM data")
  packet:add(f.version, buffer(CCI_AT, 1))
  packet:add(f.rank, buffer(CCI_AT + 1, 1))
  packet:add(f.request, buffer(CCI_AT + 2, 2))
  packet:add(f.timestamp, buffer(CCI_AT + 4, 4))
  packet:add(f.sequence, buffer(CCI_AT + 8, 4))
  pinfo.cols.protocol = "SIM"
  pinfo.cols.info = string.format("Data of rank %d, request %d, number %d", buffer(CCI_AT + 1, 1):uint(),
    buffer(CCI_AT + 2, 2):uint(), buffer(CCI_AT + 8, 4):uint())
end

function sim.dissector(buffer, pinfo, tree)
  if buffer:len() == REPORT_BYTES and buffer(0, 1):uint() == VERSION then
    return report(buffer, pinfo, tree)
  end
  if buffer:len() == HOLDING_BYTES and buffer(0, 1):uint() == VERSION then
    return holding(buffer, pinfo, tree)
  end
  -- LCT version 1 with 12 bytes of congestion control information.
  local is_lct = buffer:len() >= CCI_AT + CCI_BYTES and buffer(0, 1):bitfield(0, 4) == 1 and buffer(0, 1):bitfield(4, 2) == 2
  if not is_lct or buffer(CCI_AT, 1):uint() ~= VERSION then
    return 0
  end
  data(buffer, pinfo, tree)
  local alc = Dissector.get("alc")
  if alc then
    alc:call(buffer, pinfo, tree)
  end
  return buffer:len()
end

DissectorTable.get("udp.port"):add_for_decode_as(sim)
