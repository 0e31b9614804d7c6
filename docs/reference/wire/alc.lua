-- Wireshark's view of Headwater's header extensions in ALC packets, and of what receivers and senders of
-- sessions tell each other by unicast: docs/reference/wire/auth.md, crypt.md, levels.md, lateness.md,
-- roster.md, rtt.md, stream.md.
--   tshark -X lua_script:docs/reference/wire/alc.lua -d udp.port==PORT,hwalc
-- All else is left to the dissector of ALC; of an encrypted packet, the header alone.

local hw = Proto("hwalc", "Headwater's extensions of ALC")

local f = hw.fields
f.extension = ProtoField.string("hwalc.extension", "Extension")
f.scheme = ProtoField.uint8("hwalc.auth.scheme", "Scheme", base.HEX)
f.depth = ProtoField.uint8("hwalc.auth.depth", "Depth of the tree", base.DEC, nil, 0xF0)
f.leaf = ProtoField.uint8("hwalc.auth.leaf", "Leaf", base.DEC, nil, 0x0F)
f.started = ProtoField.uint32("hwalc.auth.started", "Start of the session (NTP seconds)")
f.number = ProtoField.uint32("hwalc.auth.number", "Number of the signature")
f.key_name = ProtoField.bytes("hwalc.auth.key", "Name of the key")
f.pass = ProtoField.bytes("hwalc.auth.pass", "Pass")
f.next_pass = ProtoField.bytes("hwalc.auth.next_pass", "Next pass")
f.signature = ProtoField.bytes("hwalc.auth.signature", "Signature (Ed25519)")
f.node = ProtoField.bytes("hwalc.auth.node", "Node of the path")
f.count = ProtoField.uint8("hwalc.manifest.count", "Count of tags")
f.tag = ProtoField.bytes("hwalc.manifest.tag", "Tag")
f.ephemeral = ProtoField.bool("hwalc.key.ephemeral", "Key of this session alone", 8, nil, 0x01)
f.public = ProtoField.bytes("hwalc.key.public", "Public key (Ed25519)")
f.epoch = ProtoField.uint8("hwalc.crypt.epoch", "Epoch of the group key")
f.salt = ProtoField.bytes("hwalc.crypt.salt", "Salt")
f.packet = ProtoField.uint64("hwalc.crypt.number", "Packet number")
f.encrypted = ProtoField.bytes("hwalc.crypt.payload", "Encrypted payload, with 16 bytes of tag")
f.lateness = ProtoField.uint24("hwalc.lateness", "Lateness (us)")
f.ceiling = ProtoField.uint8("hwalc.levels.ceiling", "Highest level that is sent")
f.round = ProtoField.uint8("hwalc.levels.round", "Round of reports", base.DEC, nil, 0xF0)
f.open = ProtoField.bool("hwalc.levels.open", "Room for receivers that start", 8, nil, 0x08)
f.loss = ProtoField.uint8("hwalc.levels.loss", "Least loss reported", base.DEC, nil, 0x07)
f.echo = ProtoField.uint8("hwalc.levels.echo", "Highest level reported")
f.interval = ProtoField.uint8("hwalc.members.exponent", "Exponent of the interval of reports", base.DEC, nil, 0xF0)
f.awaiting = ProtoField.bool("hwalc.members.awaiting", "The sender waits for ends", 8, nil, 0x08)
f.members = ProtoField.uint16("hwalc.members.count", "Receivers: power of two (5 bits), mantissa (11)", base.HEX)
f.buffer = ProtoField.uint16("hwalc.seq.buffer", "Buffer")
f.offset = ProtoField.uint32("hwalc.seq.offset", "Offset in the buffer")
f.message = ProtoField.string("hwalc.message", "Message")
f.kind = ProtoField.uint8("hwalc.message.kind", "Kind", base.DEC, nil, 0x0F)
f.nonce = ProtoField.bytes("hwalc.rtt.nonce", "Nonce")
f.pause = ProtoField.uint16("hwalc.rtt.pause", "Seconds to the next question")
f.starting = ProtoField.bool("hwalc.rtt.starting", "The receiver starts", 8, nil, 0x80)
f.lost_class = ProtoField.uint8("hwalc.rtt.loss", "Loss of the last round", base.DEC, nil, 0x70)
f.level = ProtoField.uint8("hwalc.rtt.level", "Highest level held")
f.receiver = ProtoField.bytes("hwalc.roster.receiver", "Receiver")
f.cookie = ProtoField.bytes("hwalc.roster.cookie", "Cookie")
f.sequence = ProtoField.uint16("hwalc.roster.sequence", "Number of the report")
f.result = ProtoField.uint8("hwalc.roster.result", "Exit code")
f.path = ProtoField.uint8("hwalc.roster.path", "Path of most bytes", base.DEC, { [0] = "multicast", "AMT", "relay", "HTTP" })
f.content = ProtoField.bytes("hwalc.roster.content", "Content")
f.done = ProtoField.uint32("hwalc.roster.done", "Done (millionths)")
f.useful = ProtoField.uint64("hwalc.roster.useful", "Useful bytes")
f.rate = ProtoField.uint32("hwalc.roster.rate", "Rate (kbit/s)")
f.fair = ProtoField.uint32("hwalc.roster.fair", "Fair rate (kbit/s)")
f.lost = ProtoField.uint32("hwalc.roster.lost", "Lost (millionths)")
f.whole = ProtoField.uint32("hwalc.roster.whole", "Files whole")
f.files = ProtoField.uint32("hwalc.roster.files", "Files")
f.name = ProtoField.string("hwalc.roster.name", "Name", base.UNICODE)
f.port = ProtoField.uint16("hwalc.roster.port", "Port for HTTP repair")
f.code = ProtoField.bytes("hwalc.roster.code", "Code of the report")
f.received_packets = ProtoField.uint32("hwalc.roster.packets", "Packets received")
f.lost_packets = ProtoField.uint32("hwalc.roster.packets_lost", "Packets lost")
f.exponent = ProtoField.uint8("hwalc.roster.exponent", "Exponent of the interval of reports")
f.counts = ProtoField.bool("hwalc.roster.counts", "The report counts", 8, nil, 0x01)

local wrong = ProtoExpert.new("hwalc.malformed", "Malformed extension", expert.group.MALFORMED, expert.severity.ERROR)
hw.experts = { wrong }

local HET_FIXED = 128
local AUTH_BYTES, NODE_BYTES, TAG_BYTES, KEY_BYTES, CRYPT_BYTES, SEAL_BYTES = 92, 16, 12, 36, 20, 16

-- Each dissects an extension, type and length included: adds fields by place and length, and returns a
-- summary; nil if the extension is malformed.
local extensions = {}

extensions[1] = function(range, add)
  -- Another scheme, or an extension of a fixed length.
  if range:len() < 4 or range(2, 1):bitfield(0, 4) ~= 1 then
    return string.format("EXT_AUTH(%s)", range(2):bytes():tohex(true))
  end
  if range:len() < AUTH_BYTES then
    return nil
  end
  local depth = range(3, 1):bitfield(0, 4)
  if range:len() ~= AUTH_BYTES + NODE_BYTES * depth then
    return nil
  end
  add(f.scheme, 2, 1)
  add(f.depth, 3, 1)
  add(f.leaf, 3, 1)
  add(f.started, 4, 4)
  add(f.number, 8, 4)
  add(f.key_name, 12, 4)
  add(f.pass, 16, 6)
  add(f.next_pass, 22, 6)
  add(f.signature, 28, 64)
  for node = 0, depth - 1 do
    add(f.node, AUTH_BYTES + NODE_BYTES * node, NODE_BYTES)
  end
  return string.format("EXT_AUTH(number %d depth %d leaf %d started %d key %s)", range(8, 4):uint(), depth,
    range(3, 1):bitfield(4, 4), range(4, 4):uint(), range(12, 4):bytes():tohex(true))
end

extensions[97] = function(range, add)
  local count = range(2, 1):uint()
  if range:len() ~= 4 + TAG_BYTES * count then
    return nil
  end
  add(f.count, 2, 1)
  for tag = 0, count - 1 do
    add(f.tag, 4 + TAG_BYTES * tag, TAG_BYTES)
  end
  return string.format("EXT_MANIFEST(%d tags)", count)
end

extensions[98] = function(range, add)
  if range:len() ~= CRYPT_BYTES then
    return nil
  end
  add(f.epoch, 2, 1)
  add(f.salt, 4, 8)
  add(f.packet, 12, 8)
  return string.format("EXT_CRYPT(epoch %d salt %s number %s)", range(2, 1):uint(), range(4, 8):bytes():tohex(true),
    tostring(range(12, 8):uint64()))
end

extensions[99] = function(range, add)
  if range:len() ~= KEY_BYTES then
    return nil
  end
  add(f.ephemeral, 2, 1)
  add(f.public, 4, 32)
  local once = range(2, 1):bitfield(7, 1) == 1 and " ephemeral" or ""
  return string.format("EXT_KEY(%s%s)", range(4, 32):bytes():tohex(true), once)
end

extensions[96] = function(range, add)
  if range:len() ~= 8 then
    return nil
  end
  add(f.buffer, 2, 2)
  add(f.offset, 4, 4)
  return string.format("EXT_SEQ(buffer %d offset %d)", range(2, 2):uint(), range(4, 4):uint())
end

extensions[226] = function(range, add)
  add(f.lateness, 1, 3)
  return string.format("EXT_LATENESS(%d us)", range(1, 3):uint())
end

extensions[224] = function(range, add)
  add(f.round, 1, 1)
  add(f.open, 1, 1)
  add(f.loss, 1, 1)
  add(f.ceiling, 2, 1)
  add(f.echo, 3, 1)
  local round, text = range(1, 1):bitfield(0, 4), string.format("ceiling %d", range(2, 1):uint())
  if round > 0 then
    text = string.format("%s, round %d, level %d reported", text, round, range(3, 1):uint())
    local loss = range(1, 1):bitfield(5, 3)
    if loss > 0 then
      text = string.format("%s with loss class %d", text, loss)
    end
    if range(1, 1):bitfield(4, 1) == 1 then
      text = text .. ", room for starts"
    end
  end
  return "EXT_LEVELS(" .. text .. ")"
end

extensions[225] = function(range, add)
  add(f.interval, 1, 1)
  add(f.awaiting, 1, 1)
  add(f.members, 2, 2)
  local about = range(2, 2):bitfield(5, 11) * 2 ^ range(2, 2):bitfield(0, 5)
  local text = string.format("exponent %d, %.0f receivers", range(1, 1):bitfield(0, 4), about)
  if range(1, 1):bitfield(4, 1) == 1 then
    text = text .. ", awaiting"
  end
  return "EXT_MEMBERS(" .. text .. ")"
end

-- The place of the extensions in an LCT header; nil if the buffer has none.
local function header(buffer)
  if buffer:len() < 4 or buffer(0, 1):bitfield(0, 4) ~= 1 then
    return nil
  end
  local half = buffer(1, 1):bitfield(3, 1) * 2
  local cci = (buffer(0, 1):bitfield(4, 2) + 1) * 4
  local tsi = buffer(1, 1):bitfield(0, 1) * 4 + half
  local toi = buffer(1, 1):bitfield(1, 2) * 4 + half
  local start, stop = 4 + cci + tsi + toi, buffer(2, 1):uint() * 4
  if start > stop or stop > buffer:len() then
    return nil
  end
  return start, stop
end

local RTT_BYTES, REPLY_BYTES, REPORT_BYTES = 16, 24, 60
local ROSTER_KINDS = { [0] = "hello", "progress", "done", "leaving" }

-- Items of a report, each as above; nil if one is cut or has another length.
local items = {
  [1] = function(range, add)
    local name = range:len() > 2 and range(2):string(ENC_UTF_8)
    add(f.name, 2, range:len() - 2, name)
    return name and "name " .. name
  end,
  [2] = function(range, add)
    add(f.port, 2, 2)
    return range:len() == 4 and string.format("port %d", range(2, 2):uint())
  end,
  [3] = function(range, add)
    add(f.code, 2, range:len() - 2)
    return range:len() == 18 and "code"
  end,
  [4] = function(range, add)
    add(f.received_packets, 2, 4)
    add(f.lost_packets, 6, 4)
    return range:len() == 10 and string.format("packets %d, %d lost", range(2, 4):uint(), range(6, 4):uint())
  end,
}

-- What is told by unicast, by the first three bytes: adds fields by place and length, and returns a summary;
-- nil if the message is malformed.
local messages = {}

function messages.HWR(range, add)
  if range:len() ~= RTT_BYTES then
    return nil
  end
  local kind = range(3, 1):bitfield(4, 4)
  local nonce = range(4, 8):bytes():tohex(true)
  if kind < 2 then
    add(f.nonce, 4, 8)
  end
  if kind == 0 then
    return "question " .. nonce
  elseif kind == 1 then
    add(f.pause, 12, 2)
    return string.format("answer %s, next in %d s", nonce, range(12, 2):uint())
  elseif kind == 2 then
    add(f.starting, 14, 1)
    add(f.lost_class, 14, 1)
    add(f.level, 15, 1)
    local starting = range(14, 1):bitfield(0, 1) == 1 and ", starting" or ""
    return string.format("report of level %d, loss class %d%s", range(15, 1):uint(), range(14, 1):bitfield(1, 3), starting)
  end
end

function messages.HWP(range, add)
  local kind = range(3, 1):bitfield(4, 4)
  local name = ROSTER_KINDS[kind % 8]
  if not name or range:len() < REPLY_BYTES then
    return nil
  end
  add(f.receiver, 4, 8)
  add(f.cookie, 12, 8)
  add(f.sequence, 20, 2)
  local text = string.format("%s %s %d of %s", name, kind < 8 and "report" or "reply", range(20, 2):uint(),
    range(4, 8):bytes():tohex(true))
  if kind >= 8 then
    add(f.exponent, 22, 1)
    add(f.counts, 23, 1)
    local counts = range(23, 1):bitfield(7, 1) == 1 and "counts" or "cookie told"
    return range:len() == REPLY_BYTES and string.format("%s: exponent %d, %s", text, range(22, 1):uint(), counts) or nil
  elseif kind == 0 then
    return range:len() == REPLY_BYTES and text or nil
  elseif range:len() < REPORT_BYTES then
    return nil
  end
  add(f.result, 22, 1)
  add(f.path, 23, 1)
  add(f.content, 24, 4)
  add(f.done, 28, 4)
  add(f.useful, 32, 8)
  for index, field in ipairs({ f.rate, f.fair, f.lost, f.whole, f.files }) do
    add(field, 36 + 4 * index, 4)
  end
  text = string.format("%s: %d of a million, %s bytes, result %d", text, range(28, 4):uint(), tostring(range(32, 8):uint64()),
    range(22, 1):uint())
  local at = REPORT_BYTES
  while at < range:len() do
    if at + 2 > range:len() or at + 2 + range(at + 1, 1):uint() > range:len() then
      return nil
    end
    local item, start = range(at, 2 + range(at + 1, 1):uint()), at
    local dissect = items[item(0, 1):uint()]
    local summary = dissect and dissect(item, function(field, place, length, value)
      if place + length <= item:len() and length > 0 then
        add(field, start + place, length, value)
      end
    end)
    text = summary and text .. ", " .. summary or text
    at = at + item:len()
  end
  return text
end

-- Dissects a message by unicast; false if the buffer is none.
local function message(buffer, pinfo, tree)
  local dissect = buffer:len() >= 4 and messages[buffer(0, 3):string()]
  if not dissect or buffer(3, 1):bitfield(0, 4) ~= 1 then
    return false
  end
  local fields = {}
  local summary = dissect(buffer(), function(field, at, length, value)
    fields[#fields + 1] = { field, buffer(at, length), value }
  end)
  local packet = tree:add(hw, buffer(), "Headwater's messages by unicast")
  packet:add(f.message, buffer(), summary or "malformed")
  packet:add(f.kind, buffer(3, 1))
  if not summary then
    packet:add_proto_expert_info(wrong)
  end
  for _, field in ipairs(fields) do
    packet:add(table.unpack(field))
  end
  pinfo.cols.protocol = "HWALC"
  pinfo.cols.info = summary or "malformed"
  return true
end

function hw.dissector(buffer, pinfo, tree)
  if message(buffer, pinfo, tree) then
    return buffer:len()
  end
  local start, stop = header(buffer)
  if not start then
    return 0
  end
  local packet = tree:add(hw, buffer(start, stop - start))
  local is_encrypted = false
  while start < stop do
    local het = buffer(start, 1):uint()
    local bytes = het < HET_FIXED and start + 1 < stop and buffer(start + 1, 1):uint() * 4 or 4
    if bytes == 0 or start + bytes > stop then
      packet:add_proto_expert_info(wrong)
      break
    end
    if extensions[het] then
      local range = buffer(start, bytes)
      local fields = {}
      local summary = extensions[het](range, function(field, at, length)
        fields[#fields + 1] = { field, range(at, length) }
      end)
      local item = packet:add(f.extension, range, summary or "malformed")
      if not summary then
        item:add_proto_expert_info(wrong)
      end
      for _, field in ipairs(fields) do
        item:add(field[1], field[2])
      end
    end
    is_encrypted = is_encrypted or het == 98
    start = start + bytes
  end
  local alc = Dissector.get("alc")
  local known = is_encrypted and buffer(0, stop):tvb() or buffer
  if alc then
    alc:call(known, pinfo, tree)
  end
  if is_encrypted and buffer:len() > stop then
    if buffer:len() - stop < SEAL_BYTES then
      packet:add_proto_expert_info(wrong)
    end
    packet:add(f.encrypted, buffer(stop))
  end
  return buffer:len()
end

DissectorTable.get("udp.port"):add_for_decode_as(hw)
